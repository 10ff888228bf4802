import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';

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
): Promise<{ count: number; blocksInTable: number }> {
  const { blocks, retentionMs, atMost } = options;
  const { rows } = await tx.query(statement(quotedSchema(options.schema)), [
    `(${blocks.from},0)`,
    `(${blocks.to},0)`,
    retentionMs,
    atMost,
    Date.now(),
  ]);
  return { count: Number(rows[0]?.['removed']), blocksInTable: Number(rows[0]?.['blocks']) };
}

function statement(schema: string): string {
  return `WITH gone AS (
      DELETE FROM ${schema}.idempotency_keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM ${schema}.idempotency_keys
        WHERE ctid >= $1::tid AND ctid < $2::tid AND created_at < least(clock_timestamp(), to_timestamp($5::float8 / 1000)) - $3 * interval '1 millisecond'
        LIMIT $4))
      RETURNING id
    ), answers AS (
      DELETE FROM ${schema}.answers USING gone WHERE answers.id = gone.id
    )
    SELECT (SELECT count(*) FROM gone)::int AS removed,
           (pg_relation_size('${schema}.idempotency_keys') / current_setting('block_size')::int)::int AS blocks,
           set_config('synchronous_commit', 'off', true)`;
}
