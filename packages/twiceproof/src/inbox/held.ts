/**
 * Messages that were not processed and wait for a person, each written in the transaction of its inbox row. That row says
 * "dealt with"; the held row is what is left to do, and whoever deletes it does it: it is the token, so two that redrive,
 * or one that dies, give one effect.
 */
import { createHash } from 'node:crypto';
import type { MessageId } from '../message.ts';
import { quotedSchema } from '../schema-name.ts';
import type { Delivery } from '../transport.ts';
import type { Tx } from '../tx.ts';
import type { InboxOptions } from './accept.ts';

/**
 * - `parked`: its handler failed for good, and later messages of its key wait behind it; or it is one of these
 * - `dead`: its handler failed for good, and nobody waits for it
 * - `late`, `future`, `altered`: see `Verdict`
 * - `unreadable`: no message could be made of its bytes
 */
export type HeldKind = (typeof heldKinds)[number];

export const heldKinds = ['parked', 'dead', 'late', 'future', 'altered', 'unreadable'] as const;

export interface ToHold {
  kind: HeldKind;
  delivery: Delivery;
  topicId: string;
  /** Not of what is unreadable. */
  aggregateId?: string | undefined;
  id?: MessageId | undefined;
  /** `contentHash`, or `recordHash` of what is unreadable. */
  content: bigint;
  reason: string;
}

/** `redrive`: this one alone; `release`: its key, from its first one on until none is left. */
export type Wish = 'redrive' | 'release';

export interface HeldRow extends ToHold {
  seq: bigint;
  consumer: string;
  heldAt: Date;
  asked: Wish | undefined;
}

export interface Held {
  /** Answers those that are new here: not what is held already, nor what was late and has been settled. */
  hold(tx: Tx, consumer: string, messages: readonly ToHold[]): Promise<HeldRow[]>;
  /** Of these keys those that wait for a person. Waits for whoever works one off just now. */
  blockedKeys(tx: Tx, consumer: string, keys: readonly string[]): Promise<Set<string>>;
  /** Takes one out, to run it or to drop it in this transaction; undefined if another was quicker. */
  take(tx: Tx, seq: bigint): Promise<HeldRow | undefined>;
  /** The first that blocks this key; waits for whoever has it just now. */
  takeFirstOfKey(tx: Tx, consumer: string, aggregateId: string): Promise<HeldRow | undefined>;
  /** Its handler has failed again (and with it the transaction that took it): it stays, with this reason. No wish is left. */
  keep(tx: Tx, row: Pick<HeldRow, 'seq' | 'consumer' | 'aggregateId'>, reason: string): Promise<void>;
  /** It is run or dropped on purpose, and is not held again if it comes again. False if that was so before. */
  settled(tx: Tx, message: { consumer: string; id?: MessageId | undefined; content: bigint }): Promise<boolean>;
  /** A late message is run or dropped on purpose; `duplicate` or `altered` if one of its id was before. */
  settleLate(
    tx: Tx,
    row: { consumer: string; id: MessageId; content: bigint },
  ): Promise<'first' | 'duplicate' | 'altered'>;
  list(tx: Tx, filter?: HeldFilter): Promise<HeldRow[]>;
  /** For the consumer that runs. Answers how many. */
  ask(tx: Tx, seqs: readonly bigint[], what: Wish): Promise<number>;
  /** In their order, some at a time. */
  asked(tx: Tx, consumer: string): Promise<HeldRow[]>;
  counts(tx: Tx, consumer: string): Promise<Map<HeldKind, number>>;
}

export interface HeldFilter {
  consumer?: string | undefined;
  kind?: HeldKind | undefined;
  aggregateId?: string | undefined;
  /** Only these. */
  seqs?: readonly bigint[] | undefined;
  /** Defaults to 100. */
  limit?: number | undefined;
}

const longestReason = 2_000;
const askedInPass = 100;

export function createHeld(options: InboxOptions = {}): Held {
  const table = `${quotedSchema(options.schema)}.held`;
  const settledTable = `${quotedSchema(options.schema)}.held_settled`;
  const columns = `seq::text AS seq, consumer, kind, aggregate_id, msg_id, content_hash::text AS content, topic, topic_id,
    partition, record_offset::text AS record_offset, record_key, record_headers, record_value, reason, held_at, asked`;

  async function hold(tx: Tx, consumer: string, messages: readonly ToHold[]): Promise<HeldRow[]> {
    if (messages.length === 0) return [];
    const of = <T>(pick: (each: ToHold) => T): T[] => messages.map(pick);
    const { rows } = await tx.query(
      `INSERT INTO ${table} (consumer, kind, blocks_key, aggregate_id, msg_id, content_hash, topic, topic_id, partition,
         record_offset, record_key, record_headers, record_value, reason)
       SELECT $1, kind, kind = 'parked', aggregate_id, msg_id, content, topic, topic_id, partition, record_offset,
         record_key, record_headers, record_value, reason
       FROM unnest($2::text[], $3::text[], $4::uuid[], $5::bigint[], $6::text[], $7::text[], $8::int[], $9::bigint[],
         $10::bytea[], $11::json[], $12::bytea[], $13::text[]) WITH ORDINALITY AS m (kind, aggregate_id, msg_id, content,
         topic, topic_id, partition, record_offset, record_key, record_headers, record_value, reason, n)
       WHERE kind NOT IN ('late', 'altered') OR NOT EXISTS (
         SELECT FROM ${settledTable} s WHERE s.msg_id = m.msg_id AND s.consumer = $1 AND s.content_hash = m.content)
       ORDER BY n ON CONFLICT DO NOTHING
       RETURNING ${columns}`,
      [
        consumer,
        of(({ kind }) => kind),
        of(({ aggregateId }) => (aggregateId === undefined ? null : withoutNul(aggregateId))),
        of(({ id }) => id ?? null),
        of(({ content }) => String(content)),
        of(({ delivery }) => delivery.lane.topic),
        of(({ topicId }) => topicId),
        of(({ delivery }) => delivery.lane.partition),
        of(({ delivery }) => delivery.position?.offset.toString() ?? null),
        of(({ delivery }) => (delivery.key ? Buffer.from(delivery.key) : null)),
        of(({ delivery }) => headersAsJson(delivery)),
        of(({ delivery }) => Buffer.from(delivery.value)),
        of(({ reason }) => asReason(reason)),
      ],
    );
    return rows.map(toHeld);
  }

  async function blockedKeys(tx: Tx, consumer: string, keys: readonly string[]): Promise<Set<string>> {
    if (keys.length === 0) return new Set();
    const { rows } = await tx.query(
      `SELECT key FROM unnest($2::text[]) AS key CROSS JOIN LATERAL (
         SELECT FROM ${table} WHERE consumer = $1 AND aggregate_id = key AND blocks_key ORDER BY seq LIMIT 1 FOR SHARE
       ) AS first`,
      [consumer, keys.map(withoutNul)],
    );
    const found = new Set(rows.map((row) => String(row['key'])));
    return new Set(keys.filter((key) => found.has(withoutNul(key))));
  }

  async function take(tx: Tx, seq: bigint): Promise<HeldRow | undefined> {
    const { rows } = await tx.query(`DELETE FROM ${table} WHERE seq = $1 RETURNING ${columns}`, [String(seq)]);
    return rows[0] && toHeld(rows[0]);
  }

  async function takeFirstOfKey(tx: Tx, consumer: string, aggregateId: string): Promise<HeldRow | undefined> {
    // Locked first and deleted then: whoever waited for the lock finds out here that the row is gone.
    const { rows } = await tx.query(
      `SELECT seq::text AS seq FROM ${table} WHERE consumer = $1 AND aggregate_id = $2 AND blocks_key
       ORDER BY held.seq LIMIT 1 FOR UPDATE`,
      [consumer, withoutNul(aggregateId)],
    );
    return rows[0] && take(tx, BigInt(String(rows[0]['seq'])));
  }

  async function keep(
    tx: Tx,
    { seq, consumer, aggregateId }: Pick<HeldRow, 'seq' | 'consumer' | 'aggregateId'>,
    reason: string,
  ): Promise<void> {
    await tx.query(
      `UPDATE ${table} SET asked = NULL, reason = CASE WHEN seq = $1 THEN $2 ELSE reason END
       WHERE seq = $1 OR (consumer = $3 AND aggregate_id = $4 AND asked = 'release')`,
      [String(seq), asReason(reason), consumer, aggregateId ?? null],
    );
  }

  async function settled(
    tx: Tx,
    { consumer, id, content }: { consumer: string; id?: MessageId | undefined; content: bigint },
  ): Promise<boolean> {
    if (id === undefined) return true;
    const text = `INSERT INTO ${settledTable} (msg_id, consumer, content_hash) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`;
    return (await tx.query(text, [id, consumer, String(content)])).rowCount === 1;
  }

  async function settleLate(
    tx: Tx,
    { consumer, id, content }: { consumer: string; id: MessageId; content: bigint },
  ): Promise<'first' | 'duplicate' | 'altered'> {
    const known = `SELECT content_hash::text AS content FROM ${settledTable} WHERE msg_id = $1 AND consumer = $2`;
    const contents = (await tx.query(known, [id, consumer])).rows.map((row) => row['content']);
    if (contents.length > 0) return contents.includes(String(content)) ? 'duplicate' : 'altered';
    return (await settled(tx, { consumer, id, content })) ? 'first' : 'duplicate';
  }

  async function list(tx: Tx, filter: HeldFilter = {}): Promise<HeldRow[]> {
    const { rows } = await tx.query(
      `SELECT ${columns} FROM ${table}
       WHERE ($1::text IS NULL OR consumer = $1) AND ($2::text IS NULL OR kind = $2)
         AND ($3::text IS NULL OR aggregate_id = $3) AND ($4::bigint[] IS NULL OR seq = ANY ($4))
       ORDER BY held.seq LIMIT $5`,
      [
        filter.consumer ?? null,
        filter.kind ?? null,
        filter.aggregateId === undefined ? null : withoutNul(filter.aggregateId),
        filter.seqs?.map(String) ?? null,
        filter.limit ?? 100,
      ],
    );
    return rows.map(toHeld);
  }

  async function ask(tx: Tx, seqs: readonly bigint[], what: Wish): Promise<number> {
    const text = `UPDATE ${table} SET asked = $2 WHERE seq = ANY ($1::bigint[])`;
    return (await tx.query(text, [seqs.map(String), what])).rowCount ?? 0;
  }

  async function asked(tx: Tx, consumer: string): Promise<HeldRow[]> {
    const text = `SELECT ${columns} FROM ${table} WHERE consumer = $1 AND asked IS NOT NULL ORDER BY held.seq LIMIT $2`;
    return (await tx.query(text, [consumer, askedInPass])).rows.map(toHeld);
  }

  async function counts(tx: Tx, consumer: string): Promise<Map<HeldKind, number>> {
    const { rows } = await tx.query(
      `SELECT kind, count(*)::int AS count FROM ${table} WHERE consumer = $1 GROUP BY kind`,
      [consumer],
    );
    return new Map(rows.map((row) => [row['kind'] as HeldKind, Number(row['count'])]));
  }

  return { hold, blockedKeys, take, takeFirstOfKey, keep, settled, settleLate, list, ask, asked, counts };
}

/** Over all bytes of a record, for what cannot be read any further. */
export function recordHash({ key, headers, value }: Delivery): bigint {
  const hash = createHash('sha256');
  const parts = [key ?? Buffer.alloc(0), value, ...headers.flatMap(([name, bytes]) => [Buffer.from(name), bytes])];
  for (const part of parts) hash.update(`${part.length} `).update(part);
  return hash.digest().readBigInt64BE();
}

/** The server's texts have no NUL. A key with one is told apart by its bytes, in `record_key`; here it only groups. */
function withoutNul(text: string): string {
  return text.replaceAll('\0', '\uFFFD');
}

function asReason(text: string): string {
  return withoutNul(text).slice(0, longestReason).toWellFormed();
}

/** Names and values may be any bytes. */
function headersAsJson({ headers }: Delivery): string {
  return JSON.stringify(headers.map(([name, value]) => [withoutNul(name), Buffer.from(value).toString('base64')]));
}

function toHeld(row: Record<string, unknown>): HeldRow {
  const lane = { topic: String(row['topic']), partition: Number(row['partition']) };
  const offset = row['record_offset'] as string | null;
  const key = row['record_key'] as Buffer | null;
  const headers = row['record_headers'] as [string, string][];
  const delivery: Delivery = {
    lane,
    key: key ?? undefined,
    value: row['record_value'] as Buffer,
    headers: headers.map(([name, value]) => [name, Buffer.from(value, 'base64')] as const),
    ...(offset !== null && { position: { ...lane, offset: BigInt(offset) } }),
  };
  return {
    seq: BigInt(String(row['seq'])),
    consumer: String(row['consumer']),
    kind: row['kind'] as HeldKind,
    delivery,
    topicId: String(row['topic_id']),
    aggregateId: (row['aggregate_id'] as string | null) ?? undefined,
    id: (row['msg_id'] as string | null) ?? undefined,
    content: BigInt(String(row['content'])),
    reason: String(row['reason']),
    heldAt: row['held_at'] as Date,
    asked: (row['asked'] as Wish | null) ?? undefined,
  };
}
