import { setTimeout as delay } from 'node:timers/promises';
import { answeredWithin } from '../answered.ts';
import { connectQuietly, isServerError, type Pool, type PoolClient, type QueryResult } from '../connection.ts';
import { requireCounts, withDefaults } from '../defaults.ts';
import { TwiceproofError } from '../errors.ts';
import { createNamedStatements, isNameLost } from '../named-statements.ts';
import { relayTimes, type RelayTimes } from '../relay-times.ts';
import { quotedSchema } from '../schema-name.ts';
import type { Source, SourceBatch } from '../source.ts';
import { createBatch } from './poll-batch.ts';
import type { WakeUps } from './wake-up.ts';
import { createPages, xmaxOf, type Cursor } from './poll-pages.ts';
import { beginAndLock, cursorFacts, cursorTable, endStuckRelays, shardsWithWork } from './poll-statements.ts';

export interface PollSourceOptions {
  /** A connection is used for each batch that is under way, and one more for a moment between them. */
  pool: Pool;
  /** Defaults to `twiceproof`. */
  schema?: string;
  /**
   * How often to look when there was nothing, which takes no lock and no transaction id; and how often a shard is read at
   * most, unless whole batches come. Longer is cheaper for database and brokers. Defaults to 10.
   */
  pollIntervalMs?: number;
  times?: Partial<RelayTimes>;
  /** As at the edge: say false for a client that has no names for statements. Defaults to true. */
  named?: boolean;
  /** How many places of a large window are kept in memory, some 20 bytes each. Defaults to 1,000,000. */
  maxListed?: number;
  /** Bytes of payloads in a batch, at most; the first message comes whatever its size. Defaults to 16 MiB. */
  maxBytes?: number;
  /** See `listenForWakeUps`. Whoever made them closes them. Defaults to none: polling alone. */
  wakeUps?: WakeUps;
  /** Another relay stood still and its connection was ended. */
  onStuckRelay?: (pid: number) => void;
}

/** Another shard that got something waits this long at most beside one that has many pages. */
const lookAtLeastEveryMs = 100;
interface Found {
  shards: number[];
  /** See `Cursor`. What comes between the look and the snapshot of the lock, a moment later, is not in it. */
  hasLarge: boolean;
  atMs: number;
}

const defaults = { pollIntervalMs: 10, named: true, maxListed: 1_000_000, maxBytes: 16_777_216 };

/**
 * Reads the outbox as a log, by the difference of snapshots: a pass publishes everything that is visible in a snapshot of
 * now (`cur`) and was not in that of the last pass (`prev`). No committed row can be missed, however late it was
 * committed, and none is read twice.
 *
 * The order within a key: whoever changed an aggregate later had to wait for the row lock of whoever changed it before, so
 * each snapshot that sees the later one sees the earlier. Within a window rows are sorted by their id, which was drawn
 * after the lock.
 *
 * One row of `relay_cursor` for each shard, locked while its page is published: the lock is the lease. That of a dead
 * relay goes with its connection; one that stands still is freed by the server's timeout or by the watchdog of another.
 * When it wakes, its connection is gone, and so it can publish duplicates but advance nothing.
 */
export function createPollSource(options: PollSourceOptions): Source {
  const { pollIntervalMs, named, maxListed, maxBytes } = withDefaults(defaults, options);
  requireCounts({ maxListed, maxBytes });
  const times = relayTimes(options.times);
  // Whoever holds a shard for longer than that is ended by the others anyway.
  const pool = answeredWithin(options.pool, times.watchdogMs);
  const schema = quotedSchema(options.schema);
  const run = createNamedStatements(named);
  const pages = createPages({ schema, maxListed, maxBytes, run });
  /** What was found at the last look is as good as new for a moment, while whole pages come: there is more behind them. */
  let found: Found | undefined;
  /** When a shard was read last, if that was less than a whole batch: there is no hurry then. */
  const readAt = new Map<number, number>();
  const heldBack = createHeldBack();
  let watchedAt = performance.now();
  let cursorOid: string | undefined;

  async function next({
    maxMessages,
    waitMs,
    signal,
  }: Parameters<Source['next']>[0]): Promise<SourceBatch | undefined> {
    const deadline = performance.now() + waitMs;
    while (!signal.aborted) {
      await watch();
      const work = await look();
      const mayWait = performance.now() < deadline;
      const free = work.shards.filter((shard) => heldBack.forMs(shard) <= 0);
      // Who does not wait takes what there is.
      const open = free.length > 0 || waitMs > 0 ? free : work.shards;
      const shards = open.filter((shard) => !mayWait || dueInMs(shard) <= 0);
      const batch = shards.length > 0 ? await take({ ...work, shards }, maxMessages) : undefined;
      if (batch === undefined || batch === 'again' || batch.messages.length < maxMessages) found = undefined;
      if (batch === 'again') continue;
      if (batch || performance.now() >= deadline) return batch;
      const isEarly = free.length > 0 && shards.length === 0;
      const pauseMs = isEarly ? Math.min(...free.map(dueInMs)) : pollIntervalMs * (0.75 + Math.random() / 2);
      if (!options.wakeUps) await delay(pauseMs, undefined, { signal }).catch(() => {});
      // Who is woken does not wait for the next reading of a shard either; the sender sees to it that it is not too often.
      else if (await options.wakeUps.wait(pauseMs, signal)) readAt.clear();
    }
    return undefined;
  }

  function dueInMs(shard: number): number {
    const last = readAt.get(shard);
    return last === undefined ? 0 : last + pollIntervalMs - performance.now();
  }

  async function look(): Promise<Found> {
    if (found && performance.now() - found.atMs < lookAtLeastEveryMs) return found;
    const ask = async (): Promise<QueryResult> => onConnection((client) => run(client, shardsWithWork(schema), []));
    const { rows } = await ask().catch(async (error: unknown) => {
      if (isNameLost(error)) return ask();
      throw error;
    });
    const shards = rows.map((row) => Number(row['shard']));
    found = { shards, hasLarge: rows[0]?.['has_large'] === true, atMs: performance.now() };
    return found;
  }

  async function take(work: Found, maxMessages: number): Promise<SourceBatch | 'again' | undefined> {
    const beganAt = performance.now();
    const client = await connectQuietly(pool);
    let batch: SourceBatch;
    try {
      const cursor = await lock(client, work);
      if (!cursor) {
        await client.query('ROLLBACK');
        client.release();
        return undefined;
      }
      const page = await pages.take(client, cursor, maxMessages);
      if (page.isLast && page.rows.length > 0 && page.rows.length < maxMessages) readAt.set(cursor.shard, beganAt);
      else readAt.delete(cursor.shard);
      const { shard } = cursor;
      batch = createBatch({ client, schema, cursor, page, onEnd: (done) => heldBack.ended(shard, done) });
    } catch (error) {
      await giveUp(client, error);
      if (isNameLost(error)) return 'again';
      throw error;
    }
    if (batch.messages.length > 0) return batch;
    // Nothing to publish: an empty window is closed, and rows behind parked ones join them. More may stand behind it.
    await batch.advance({ done: 0, parked: [] });
    return 'again';
  }

  async function lock(client: PoolClient, { shards, hasLarge }: Found): Promise<Cursor | undefined> {
    const results = await client.query(beginAndLock(schema, shards, times.idleTimeoutMs));
    const [, , locked, clock] = results as unknown as QueryResult[];
    const row = locked?.rows[0];
    if (!row) return undefined;
    const [prev, now] = [String(row['prev']), String(clock?.rows[0]?.['now'])];
    if (xmaxOf(prev) > xmaxOf(now)) throw cursorsAreForeign('they lie ahead of it');
    return {
      shard: Number(row['shard']),
      prev,
      cur: (row['cur'] as string | null) ?? now,
      lastId: BigInt(String(row['last_id'])),
      windowDone: Number(row['window_done']),
      hasParked: clock?.rows[0]?.['has_parked'] === true,
      hasLarge,
    };
  }

  async function onConnection<T>(work: (client: PoolClient) => Promise<T>): Promise<T> {
    const client = await connectQuietly(pool);
    try {
      const result = await work(client);
      client.release();
      return result;
    } catch (error) {
      client.release(!isServerError(error));
      throw error;
    }
  }

  /** Not by a timer of its own: a relay that works looks after the others as it goes. */
  async function watch(): Promise<void> {
    if (performance.now() - watchedAt < times.watchdogMs / 4) return;
    watchedAt = performance.now();
    const results = await onConnection(async (client) => {
      cursorOid ??= String((await client.query(cursorTable(schema))).rows[0]?.['oid']);
      return client.query(endStuckRelays(cursorOid, times.watchdogMs));
    });
    const [, ended] = results as unknown as QueryResult[];
    for (const row of ended?.rows ?? []) options.onStuckRelay?.(Number(row['pid']));
  }

  async function check(): Promise<void> {
    const { rows } = await onConnection((client) => client.query(cursorFacts(schema)));
    const { is_standby, shards, cursors, highest, is_foreign, is_ahead } = rows[0]!;
    if (is_standby) throw new TwiceproofError('TP_STANDBY', 'this server is a standby');
    if (shards === null || cursors !== shards || highest !== Number(shards) - 1) {
      throw new TwiceproofError(
        'TP_SCHEMA_VERSION',
        `there are ${String(cursors)} cursors for ${String(shards)} shards`,
      );
    }
    if (is_foreign) throw cursorsAreForeign('they were made in another cluster');
    if (is_ahead) throw cursorsAreForeign('they lie ahead of it');
  }

  return { name: 'poll', times, check, next, close: async () => {} };
}

const shortestPauseMs = 50;
const longestPauseMs = 5_000;

/**
 * Shards of which something could not be published. Without this the one that waits would be the one that has waited
 * longest, and so always the next: nobody else would have his turn.
 */
function createHeldBack() {
  const pauses = new Map<number, { pauseMs: number; untilMs: number }>();
  return {
    forMs: (shard: number): number => (pauses.get(shard)?.untilMs ?? 0) - performance.now(),
    ended: (shard: number, done: 'all' | 'part' | 'nothing'): void => {
      if (done === 'all') {
        pauses.delete(shard);
        return;
      }
      const before = done === 'nothing' ? (pauses.get(shard)?.pauseMs ?? 0) : 0;
      const pauseMs = Math.min(Math.max(shortestPauseMs, 2 * before), longestPauseMs);
      pauses.set(shard, { pauseMs, untilMs: performance.now() + pauseMs * (0.5 + Math.random()) });
    },
  };
}

function cursorsAreForeign(why: string): TwiceproofError {
  return new TwiceproofError('TP_CURSOR_FOREIGN', `the cursors of the relay do not belong to this cluster: ${why}`);
}

async function giveUp(client: PoolClient, error: unknown): Promise<void> {
  try {
    if (!isServerError(error) && !(error instanceof TwiceproofError)) throw error;
    await client.query('ROLLBACK');
    client.release();
  } catch {
    client.release(true);
  }
}
