import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';

export interface Removed {
  /** Old ones that are there, up to `atMost`; somebody else may be removing them. */
  found: number;
  removed: number;
  blocksInTable: number;
  /** When the oldest key that is left in these blocks comes to its end, in so many milliseconds. One that comes later lives longer. */
  oldestDueMs: number;
}

/**
 * Removes keys of these blocks that are older than the retention, with their answers. By the database's clock and by our
 * own: one that has jumped ahead must not take keys that will be asked for again.
 *
 * It does not wait for the disk: nobody is told, and what a crash brings back is removed again. Whoever claims such a key
 * anew waits for the disk, and with that for all that was written before.
 */
export async function removeExpired(
  tx: Tx,
  options: {
    blocks: { from: number; to: number };
    retentionMs: number;
    atMost: number;
    schema: string | undefined;
  },
): Promise<Removed> {
  const { blocks, retentionMs, atMost } = options;
  const { rows } = await tx.query(statement(quotedSchema(options.schema)), [
    `(${blocks.from},0)`,
    `(${blocks.to},0)`,
    retentionMs,
    atMost,
    Date.now(),
  ]);
  const [{ found, removed, blocks_in_table, oldest_due_ms } = {}] = rows;
  return {
    found: Number(found),
    removed: Number(removed),
    blocksInTable: Number(blocks_in_table),
    oldestDueMs: Number(oldest_due_ms ?? retentionMs),
  };
}

/**
 * The answers are not joined with the keys that are gone: to plan a join, Postgres looks up where the index of the answers
 * begins, and wades through all that was removed there and not vacuumed yet.
 */
function statement(schema: string): string {
  const kept = "least(now(), to_timestamp($5::float8 / 1000)) - $3 * interval '1 millisecond'";
  const inBlocks = 'ctid >= $1::tid AND ctid < $2::tid';
  return `WITH old AS MATERIALIZED (
      SELECT ctid FROM ${schema}.idempotency_keys WHERE ${inBlocks} AND created_at < ${kept} LIMIT $4
    ), gone AS (
      DELETE FROM ${schema}.idempotency_keys WHERE ctid = ANY (ARRAY(SELECT ctid FROM old)) RETURNING id
    ), answers AS (
      DELETE FROM ${schema}.answers WHERE id = ANY (ARRAY(SELECT id FROM gone))
    )
    SELECT (SELECT count(*) FROM old)::int AS found,
           (SELECT count(*) FROM gone)::int AS removed,
           (pg_relation_size('${schema}.idempotency_keys') / current_setting('block_size')::int)::int AS blocks_in_table,
           CASE WHEN (SELECT count(*) FROM old) < $4 THEN (
             SELECT extract(epoch FROM min(created_at) - (${kept})) * 1000 FROM ${schema}.idempotency_keys
             WHERE ${inBlocks} AND created_at >= ${kept})
           ELSE 0 END AS oldest_due_ms,
           set_config('synchronous_commit', 'off', true)`;
}
