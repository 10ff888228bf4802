import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';

/** How many messages are committed and not yet published; counts no further than `upTo`, so it costs no more than that. */
export async function countPending(tx: Tx, upTo: number, schemaName?: string): Promise<number> {
  const schema = quotedSchema(schemaName);
  const { rows } = await tx.query(
    `SELECT count(*)::int AS pending FROM (
       SELECT 1 FROM ${schema}.relay_cursor c JOIN ${schema}.outbox o
         ON o.shard = c.shard AND o.xid >= pg_snapshot_xmin(c.prev)
         AND NOT pg_visible_in_snapshot(o.xid, c.prev)
         AND NOT (c.cur IS NOT NULL AND o.id <= c.last_id AND pg_visible_in_snapshot(o.xid, c.cur))
       LIMIT $1) AS counted`,
    [upTo],
  );
  return Number(rows[0]?.['pending']);
}
