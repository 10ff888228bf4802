import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';

/**
 * How many messages are committed and not yet published; counts no further than `upTo` in a shard, and answers no more
 * than that, so it costs no more either.
 */
export async function countPending(tx: Tx, upTo: number, schemaName?: string): Promise<number> {
  const schema = quotedSchema(schemaName);
  const { rows } = await tx.query(
    `SELECT least(sum(${counted}), $1)::int AS pending FROM ${schema}.relay_cursor c, ${counts(schema)}`,
    [upTo],
  );
  return Number(rows[0]?.['pending']);
}

/** How long the oldest of them has been waiting, in seconds, or undefined when nothing is. It looks at the head of each shard only. */
export async function oldestPending(tx: Tx, schemaName?: string): Promise<number | undefined> {
  const schema = quotedSchema(schemaName);
  const { rows } = await tx.query(
    `SELECT extract(epoch FROM clock_timestamp() - min(head.oldest))::float8 AS seconds
     FROM ${schema}.relay_cursor c, ${head(schema)}`,
  );
  return asSeconds(rows[0]?.['seconds']);
}

export interface PendingShard {
  shard: number;
  /** No further than it was counted. */
  pending: number;
  oldestSeconds: number | undefined;
}

/** The same for each shard. */
export async function pendingShards(tx: Tx, upTo: number, schemaName?: string): Promise<PendingShard[]> {
  const schema = quotedSchema(schemaName);
  const { rows } = await tx.query(
    `SELECT c.shard, least(${counted}, $1)::int AS pending,
       extract(epoch FROM clock_timestamp() - head.oldest)::float8 AS seconds
     FROM ${schema}.relay_cursor c, ${counts(schema)}, ${head(schema)} ORDER BY c.shard`,
    [upTo],
  );
  return rows.map(({ shard, pending, seconds }) => ({
    shard: Number(shard),
    pending: Number(pending),
    oldestSeconds: asSeconds(seconds),
  }));
}

const counted = '(newer.count + late.count - c.window_done)';

/**
 * Of the shard of cursor `c`. The upper end of the range is always true, and makes the planner go through the index: of a
 * range with one end it believes that it is a third of the log.
 */
const newerThan = `o.shard = c.shard AND o.xid >= pg_snapshot_xmax(c.prev)
  AND o.xid < pg_snapshot_xmax(pg_current_snapshot())`;

const counts = (schema: string): string =>
  `LATERAL (SELECT count(*) FROM (
     SELECT FROM ${schema}.outbox_places o WHERE ${newerThan} LIMIT $1 + c.window_done) AS o) AS newer,
   LATERAL (SELECT count(*) FROM pg_snapshot_xip(c.prev) AS running, LATERAL (
     SELECT FROM ${schema}.outbox_places o WHERE o.shard = c.shard AND o.xid = running
     LIMIT $1 + c.window_done) AS o) AS late`;

const head = (schema: string): string =>
  `LATERAL (SELECT min(first.created_at) AS oldest FROM (
     (SELECT o.created_at FROM ${schema}.outbox_places o WHERE ${newerThan} AND NOT ${isDone}
      ORDER BY o.xid, o.id LIMIT 1)
     UNION ALL
     (SELECT one.created_at FROM pg_snapshot_xip(c.prev) AS running, LATERAL (
        SELECT o.created_at FROM ${schema}.outbox_places o
        WHERE o.shard = c.shard AND o.xid = running AND NOT ${isDone} ORDER BY o.id LIMIT 1) AS one)) AS first) AS head`;

const isDone = '(c.cur IS NOT NULL AND o.id <= c.last_id AND pg_visible_in_snapshot(o.xid, c.cur))';

function asSeconds(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}
