import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';

/**
 * How many messages are committed and not yet published; counts no further than `upTo` in a shard, so it costs no more
 * than that. The limits inside also make the planner go through the index for each shard: left to itself it compares
 * the whole log with the cursors.
 */
export async function countPending(tx: Tx, upTo: number, schemaName?: string): Promise<number> {
  const schema = quotedSchema(schemaName);
  const { rows } = await tx.query(
    `SELECT least(sum(newer.count + late.count - c.window_done), $1)::int AS pending
     FROM ${schema}.relay_cursor c,
       LATERAL (SELECT count(*) FROM (
         SELECT FROM ${schema}.outbox o WHERE o.shard = c.shard AND o.xid >= pg_snapshot_xmax(c.prev)
         LIMIT $1 + c.window_done) AS o) AS newer,
       LATERAL (SELECT count(*) FROM (
         SELECT FROM ${schema}.outbox o
         WHERE o.shard = c.shard AND o.xid = ANY (ARRAY(SELECT pg_snapshot_xip(c.prev)))
         LIMIT $1) AS o) AS late`,
    [upTo],
  );
  return Number(rows[0]?.['pending']);
}
