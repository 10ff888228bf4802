/**
 * What waits for a person: messages that could not be published as they are, and those of the same key behind them. The
 * relay copies them aside and goes on; here they are looked at, published after all, or given up on purpose. While one
 * of a key is there, newer ones of that key go behind it, and whoever takes some away holds the key's shard: so
 * nothing overtakes.
 */
import type { MessageId } from '../message.ts';
import { quotedSchema } from '../schema-name.ts';
import type { SourcedMessage } from '../source.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { PublishOutcome } from '../transport.ts';
import type { Tx } from '../tx.ts';

export interface ParkedMessage extends SourcedMessage {
  seq: bigint;
  reason: string;
  parkedAt: Date;
}

export interface ParkedKey {
  aggregateId: string;
  /** Without its payload. */
  first: Omit<ParkedMessage, 'payload'>;
  /** How many wait behind the first. */
  behind: number;
}

/** Publishes in this order and answers one outcome for each, as a `Publisher` does. */
export type PublishMessages = (messages: readonly SourcedMessage[]) => Promise<PublishOutcome[]>;

export interface ReleaseOptions {
  aggregateId: string;
  /** Defaults to `twiceproof`. */
  schema?: string | undefined;
  /** How many are published together, in one transaction. Defaults to 100. */
  page?: number;
  /** For the relay to finish what it publishes of that shard. Defaults to 20,000: longer than a relay may take. */
  lockWaitMs?: number;
  /** After each page: how many are published so far. */
  onProgress?(messages: number): void;
}

export type Released = { messages: number } & (
  | { outcome: 'released' }
  /** It still cannot be published as it is. It is kept, and so is all behind it. */
  | { outcome: 'rejected'; id: MessageId; reason: string }
  /** Nothing can be published there at present, or nobody knows whether it was. It is kept. */
  | { outcome: 'waiting'; id: MessageId; reason: string }
);

const defaults = { page: 100, lockWaitMs: 20_000 };
/** For publishing a page; a connection that stands still for longer loses the shard, as a relay's does. */
const idleTimeoutMs = 30_000;

export async function parkedKeys(tx: Tx, atMost: number, schemaName?: string): Promise<ParkedKey[]> {
  const table = `${quotedSchema(schemaName)}.relay_parked`;
  const { rows } = await tx.query(
    `SELECT ${columns}, NULL AS payload, behind FROM (
       SELECT min(seq) AS seq, count(*)::int - 1 AS behind FROM ${table} GROUP BY shard, aggregate_id ORDER BY 1 LIMIT $1
     ) AS key JOIN ${table} AS p USING (seq) ORDER BY seq`,
    [atMost],
  );
  return rows.map((row) => {
    const { payload: _, ...first } = toMessage(row);
    return { aggregateId: first.aggregateId, first, behind: Number(row['behind']) };
  });
}

export async function countParked(tx: Tx, schemaName?: string): Promise<{ keys: number; messages: number }> {
  const { rows } = await tx.query(
    `SELECT count(DISTINCT aggregate_id)::int AS keys, count(*)::int AS messages
     FROM ${quotedSchema(schemaName)}.relay_parked`,
  );
  return { keys: Number(rows[0]?.['keys']), messages: Number(rows[0]?.['messages']) };
}

/** Of one key, in the order in which they will be published. */
export async function parkedMessages(
  tx: Tx,
  { aggregateId, atMost, schema }: { aggregateId: string; atMost: number; schema?: string | undefined },
): Promise<ParkedMessage[]> {
  const { rows } = await tx.query(
    `SELECT ${columns}, payload FROM ${quotedSchema(schema)}.relay_parked
     WHERE aggregate_id = $1 ORDER BY seq LIMIT $2`,
    [aggregateId, atMost],
  );
  return rows.map(toMessage);
}

/** Publishes what is parked of a key, in order, page by page, until none is left. Again is always safe: the ids stay. */
export async function releaseParked(
  pool: Pool,
  publish: PublishMessages,
  options: ReleaseOptions,
): Promise<Released | { outcome: 'nothing there' }> {
  const { aggregateId, page, lockWaitMs } = { ...defaults, ...options };
  const table = `${quotedSchema(options.schema)}.relay_parked`;
  let messages = 0;

  async function releasePage(tx: Tx): Promise<{ left: boolean; published: number; failed?: Released }> {
    await holdKey(tx, aggregateId, options.schema);
    const parked = await parkedMessages(tx, { aggregateId, atMost: page, schema: options.schema });
    if (parked.length === 0) return { left: false, published: 0 };
    const outcomes = await publish(parked.map(({ seq: _s, reason: _r, parkedAt: _p, ...message }) => message));
    const done = parked.filter((_, n) => outcomes[n]?.outcome === 'acknowledged');
    await tx.query(`DELETE FROM ${table} WHERE seq = ANY ($1::bigint[])`, [done.map(({ seq }) => String(seq))]);
    const published = done.length;
    const stopped = outcomes.findIndex(({ outcome }) => outcome !== 'acknowledged' && outcome !== 'withheld');
    const failure = outcomes[stopped];
    if (published === parked.length) return { left: true, published };
    const outcome = failure?.outcome === 'rejected' ? 'rejected' : 'waiting';
    const reason = failure && 'error' in failure ? failure.error.message : 'the transport did not say why';
    const { id } = parked[Math.max(stopped, 0)]!;
    return { left: true, published, failed: { outcome, messages: messages + published, id, reason } };
  }

  for (;;) {
    const { left, published, failed } = await transaction(pool, releasePage, {
      localSettings: bounds(lockWaitMs),
    });
    if (failed) return failed;
    messages += published;
    if (!left) return messages === 0 ? { outcome: 'nothing there' } : { outcome: 'released', messages };
    options.onProgress?.(messages);
  }
}

export type Dropped =
  | { outcome: 'dropped'; messages: number }
  | { outcome: 'nothing there' }
  /** Others of its key wait before it; the first is named. */
  | { outcome: 'not the first'; first: MessageId };

/** Gives up the first message of a key, or all of the key: they are never published. */
export async function dropParked(
  pool: Pool,
  options: ({ id: MessageId } | { aggregateId: string }) & { schema?: string | undefined; lockWaitMs?: number },
): Promise<Dropped> {
  const table = `${quotedSchema(options.schema)}.relay_parked`;
  return transaction(
    pool,
    async (tx): Promise<Dropped> => {
      if ('aggregateId' in options) {
        await holdKey(tx, options.aggregateId, options.schema);
        const { rowCount } = await tx.query(`DELETE FROM ${table} WHERE aggregate_id = $1`, [options.aggregateId]);
        return rowCount ? { outcome: 'dropped', messages: rowCount } : { outcome: 'nothing there' };
      }
      const { rows } = await tx.query(`SELECT aggregate_id FROM ${table} WHERE msg_id = $1`, [options.id]);
      if (!rows[0]) return { outcome: 'nothing there' };
      const aggregateId = String(rows[0]['aggregate_id']);
      await holdKey(tx, aggregateId, options.schema);
      const [first] = await parkedMessages(tx, { aggregateId, atMost: 1, schema: options.schema });
      if (!first) return { outcome: 'nothing there' };
      if (first.id !== options.id.toLowerCase()) return { outcome: 'not the first', first: first.id };
      await tx.query(`DELETE FROM ${table} WHERE seq = $1`, [String(first.seq)]);
      return { outcome: 'dropped', messages: 1 };
    },
    { localSettings: bounds(options.lockWaitMs ?? defaults.lockWaitMs) },
  );
}

function bounds(lockWaitMs: number): Record<string, string> {
  return { lock_timeout: `${lockWaitMs}`, idle_in_transaction_session_timeout: `${idleTimeoutMs}` };
}

/** Until the transaction ends no relay publishes or parks anything of the key. */
async function holdKey(tx: Tx, aggregateId: string, schemaName?: string): Promise<void> {
  const schema = quotedSchema(schemaName);
  // Once, unless the count of shards was changed while this waited.
  for (let attempt = 0; attempt < 3; attempt += 1) {
    const { rows } = await tx.query(`SELECT shard FROM ${schema}.relay_parked WHERE aggregate_id = $1 LIMIT 1`, [
      aggregateId,
    ]);
    if (!rows[0]) return;
    const shard = Number(rows[0]['shard']);
    await tx.query(`SELECT FROM ${schema}.relay_cursor WHERE shard = $1 FOR NO KEY UPDATE`, [shard]);
    const { rowCount } = await tx.query(
      `SELECT FROM ${schema}.relay_parked WHERE aggregate_id = $1 AND shard <> $2 LIMIT 1`,
      [aggregateId, shard],
    );
    if (!rowCount) return;
  }
  throw new Error(`the parked messages of '${aggregateId}' stand in several shards`);
}

/** As texts, since how a client reads json or times is for its owner to choose. */
const columns = `seq::text, topic, aggregate_id, msg_id, event_type, headers::text, reason,
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at,
  to_char(parked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS parked_at`;

function toMessage(row: Record<string, unknown>): ParkedMessage {
  const headers = row['headers'] as string | null;
  return {
    seq: BigInt(row['seq'] as string),
    id: row['msg_id'] as string,
    topic: row['topic'] as string,
    aggregateId: row['aggregate_id'] as string,
    type: row['event_type'] as string,
    payload: row['payload'] as Buffer,
    ...(headers !== null && { headers: JSON.parse(headers) as Record<string, string> }),
    createdAt: new Date(row['created_at'] as string),
    reason: row['reason'] as string,
    parkedAt: new Date(row['parked_at'] as string),
  };
}
