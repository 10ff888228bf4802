/** The rows of a shard's window, page by page: the next one is read ahead, and a window of millions is sorted once. */
import type { PoolClient } from '../connection.ts';
import type { RunStatement } from '../named-statements.ts';
import { TwiceproofError } from '../errors.ts';
import { point } from '../points.ts';
import type { SourcedMessage } from '../source.ts';
import { numbersIn, type Numbers } from './numbers.ts';
import { isBehind, listWindow, readLargeListed, readLargePage, readListed, readPage } from './poll-statements.ts';

/** How far a shard is published: all that is visible in `prev`, and of the window between it and `cur` what lies up to `lastId`. */
export interface Cursor {
  shard: number;
  prev: string;
  cur: string;
  lastId: bigint;
  windowDone: number;
  /** Whether some key is parked. */
  hasParked: boolean;
  /** Whether there are payloads of which a page could be too large for the memory. */
  hasLarge: boolean;
}

export interface Row {
  position: bigint;
  message: SourcedMessage;
  /** As they stand in the outbox: JSON, and microseconds since 1970. */
  headers: string | null;
  createdUs: number;
  /** Of a key that is parked: it goes behind. */
  isBehind: boolean;
}

/** The next rows of a window, and whether they are its last ones. */
export interface Page {
  rows: Row[];
  isLast: boolean;
}

/** A page that is being read before its turn, and where the cursor must stand then. */
interface Ahead {
  prev: string;
  cur: string;
  lastId: bigint;
  limit: number;
  page: Promise<Page>;
}

/** Where the rest of a large window is; `isWhole` if the list was not cut. */
interface Listed {
  prev: string;
  cur: string;
  lastId: bigint;
  xids: Numbers;
  ids: Numbers;
  isWhole: boolean;
}

interface Found {
  found: Record<string, unknown>[];
  inPage: number;
}

const nothing: Found = { found: [], inPage: 0 };

export interface PagesOptions {
  /** Quoted. */
  schema: string;
  /** How many places of a large window are kept in memory. */
  maxListed: number;
  /** Of payloads in a page. The first message comes whatever its size. */
  maxBytes: number;
  /** Sends a statement that comes again and again. */
  run: RunStatement;
}

export interface Pages {
  /** The next page at the cursor, which is locked on this connection. */
  take(client: PoolClient, cursor: Cursor, limit: number): Promise<Page>;
}

export function createPages({ schema, maxListed, maxBytes, run }: PagesOptions): Pages {
  const list = listWindow(schema);
  const textsWith = (more: string) => ({
    page: readPage(schema, more),
    large_page: readLargePage(schema, more),
    listed: readListed(schema, more),
    large_listed: readLargeListed(schema, more),
  });
  const [plain, besideParked] = [textsWith(''), textsWith(isBehind(schema))];
  const lists = new Map<number, Listed>();
  const aheads = new Map<number, Ahead>();
  /** Shards of which a page could not be read ahead. */
  const failed = new Set<number>();

  async function take(client: PoolClient, cursor: Cursor, limit: number): Promise<Page> {
    const page = (await takeAhead(cursor, limit)) ?? (await read(client, cursor, limit));
    const standsAlone = failed.delete(cursor.shard);
    if (!page.isLast && !cursor.hasParked && !standsAlone) readAhead(client, cursor, page, limit);
    return page;
  }

  /**
   * The next page is read while this one is published, on the same connection, whose next statement waits for it. It is
   * good if the cursor is then found where this page ends, since the rows of a window do not change. Only which keys are
   * parked may have changed meanwhile, so it is not used while any are.
   *
   * A statement that fails takes the transaction with it that was to advance past this page, which so is published again.
   * That must not go on for ever where a page cannot be read: the next time this one stands alone.
   */
  function readAhead(client: PoolClient, cursor: Cursor, { rows }: Page, limit: number): void {
    const { shard, prev, cur } = cursor;
    const lastId = rows.at(-1)?.position ?? cursor.lastId;
    const page = read(client, { ...cursor, lastId }, limit);
    page.catch(() => failed.add(shard)); // Whoever takes it hears of it.
    aheads.set(shard, { prev, cur, lastId, limit, page });
  }

  async function takeAhead(cursor: Cursor, limit: number): Promise<Page | undefined> {
    const ahead = aheads.get(cursor.shard);
    aheads.delete(cursor.shard);
    if (!ahead) return undefined;
    // Also where it is of no use: two that read at the same time would use up one list, and rows would be missed.
    const [done] = await Promise.allSettled([ahead.page]);
    if (cursor.hasParked || ahead.limit !== limit) return undefined;
    if (ahead.prev !== cursor.prev || ahead.cur !== cursor.cur || ahead.lastId !== cursor.lastId) return undefined;
    if (done.status === 'fulfilled') return done.value;
    if (done.reason instanceof TwiceproofError) throw done.reason;
    return undefined; // Its connection was lost, or the statement; it is read again.
  }

  async function read(client: PoolClient, cursor: Cursor, limit: number): Promise<Page> {
    const { shard, prev, cur, lastId } = cursor;
    const window = [shard, prev, cur, String(lastId)];
    // The first page of a window tells whether it is a large one, unless that is plain from its transactions.
    if (lastId === 0n && transactionsBetween(prev, cur) <= BigInt(limit)) {
      lists.delete(shard);
      const { found, inPage } = await readRows(client, 'page', [...window, limit], cursor);
      const rows = found.map((row) => toRow(row, row['position'] as string));
      return { rows, isLast: inPage < limit && rows.length === inPage };
    }
    let listed = lists.get(shard);
    if (!listed || !isValid(listed, cursor)) {
      // One more than is wanted: so a window that just fits is known to end there, and is not searched again for the rest.
      const { rows } = await run(client, list, [...window, maxListed + 1]);
      const { count, xids, ids } = rows[0] ?? {};
      // A list that was cut is not the end of the window.
      const isWhole = Number(count) <= maxListed;
      listed = { prev, cur, lastId, xids: numbersIn(xids), ids: numbersIn(ids), isWhole };
      lists.set(shard, listed);
    }
    const [ids, xids] = [listed.ids.first(limit), listed.xids.first(limit)];
    const values = [shard, `{${[...new Set(xids)].join(',')}}`, ids[0] ?? '0', ids.at(-1) ?? '0'];
    const { found, inPage } = ids.length === 0 ? nothing : await readRows(client, 'listed', values, cursor);
    if (inPage !== ids.length) {
      lists.delete(shard);
      throw new TwiceproofError('TP_OUTBOX_CHANGED', `of ${ids.length} rows of the outbox ${inPage} are left`);
    }
    const inOrder = cursor.hasLarge ? found : byId(found, xids);
    const rows = inOrder.map((row, n) => toRow(row, ids[n]!));
    // Meanwhile another has read by the same list: the server had ended our transaction, which the wire did not tell yet.
    // Both must not use it up.
    if (listed.lastId !== lastId) {
      lists.delete(shard);
      return { rows, isLast: false };
    }
    // Valid again when the cursor stands behind this page. If it advances by a part only, the list is made anew.
    listed.ids.drop(ids.slice(0, rows.length));
    listed.xids.drop(xids.slice(0, rows.length));
    listed.lastId = rows.at(-1)?.position ?? lastId;
    return { rows, isLast: listed.isWhole && listed.ids.isEmpty() };
  }

  /** Found are as many of the rows in the page as their bytes allow. */
  async function readRows(
    client: PoolClient,
    name: 'page' | 'listed',
    values: unknown[],
    { hasLarge, hasParked }: Cursor,
  ): Promise<Found> {
    const text = (hasParked ? besideParked : plain)[hasLarge ? (`large_${name}` as const) : name];
    const reading = run(client, text, hasLarge ? [...values, maxBytes] : values);
    const [{ rows: found }] = await Promise.all([reading, point('source:reading')]);
    return { found, inPage: hasLarge ? Number(found[0]?.['in_page'] ?? 0) : found.length };
  }

  return { take };
}

/** At most: numbers are drawn by others too. */
function transactionsBetween(prev: string, cur: string): bigint {
  return xmaxOf(cur) - xmaxOf(prev);
}

/** Of a snapshot, `xmin:xmax:xip,...`: the first transaction id that was not given yet. */
export function xmaxOf(snapshot: string): bigint {
  return BigInt(snapshot.split(':')[1] ?? '');
}

/** It begins where the cursor stands now, and is not used up; one that was cut and is used up says nothing of the rest. */
function isValid({ prev, cur, lastId, ids, isWhole }: Listed, cursor: Cursor): boolean {
  return prev === cursor.prev && cur === cursor.cur && lastId === cursor.lastId && (isWhole || !ids.isEmpty());
}

/** What came by transaction, and within each by id, by id alone; `xids` are in that order. */
function byId<T>(found: readonly T[], xids: readonly string[]): readonly T[] {
  const numbers = xids.map(Number);
  if (numbers.every((xid, n) => n === 0 || numbers[n - 1]! <= xid)) return found;
  const places = numbers.map((_, n) => n).sort((a, b) => numbers[a]! - numbers[b]! || a - b);
  const inOrder = [...found];
  places.forEach((n, at) => {
    inOrder[n] = found[at]!;
  });
  return inOrder;
}

function toRow(row: Record<string, unknown>, id: string): Row {
  const [headers, createdUs] = [row['headers'] as string | null, microsecondsOf(row['created'] as Buffer)];
  const message: SourcedMessage = {
    topic: row['topic'] as string,
    aggregateId: row['aggregate_id'] as string,
    id: row['msg_id'] as string,
    type: row['event_type'] as string,
    payload: row['payload'] as Buffer,
    createdAt: new Date(Math.floor(createdUs / 1_000)),
    ...(headers !== null && { headers: JSON.parse(headers) as Record<string, string> }),
  };
  return { position: BigInt(id), message, headers, createdUs, isBehind: row['is_behind'] === true };
}

const from1970To2000Us = 946_684_800_000_000;

/** As the server sends a time: microseconds since 2000. One that is infinite becomes one that cannot be published, but kept. */
function microsecondsOf(sent: Buffer): number {
  return Math.max(-2e17, Math.min(9e18, Number(sent.readBigInt64BE()) + from1970To2000Us));
}
