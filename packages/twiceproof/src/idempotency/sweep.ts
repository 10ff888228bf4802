import { setTimeout as delay } from 'node:timers/promises';
import { quotedSchema } from '../schema-name.ts';
import type { PassResult, Service } from '../service.ts';
import { transaction, type Pool } from '../transaction.ts';

export interface KeySweeperOptions {
  pool: Pool;
  /** Defaults to `twiceproof`. */
  schema?: string;
  /** As at the edge: how long keys are kept. Defaults to 72 hours. */
  retentionMs?: number;
  /** How many keys one transaction removes at most: few, so that nothing waits for it. Defaults to 200. */
  keysInPass?: number;
  /** How many blocks of the table one pass looks through. Defaults to 64 (about 4,000 keys). */
  blocksInPass?: number;
  /** Pause between two passes, so that it never takes more than its share. Defaults to 20. */
  pauseMs?: number;
  /** Pause when the whole table was looked through and nothing was old. Defaults to 60,000. */
  idlePauseMs?: number;
}

const defaults = { retentionMs: 72 * 3_600_000, keysInPass: 200, blocksInPass: 64, pauseMs: 20, idlePauseMs: 60_000 };

/**
 * Removes keys that are older than the retention, with their answers. It walks through the table block by block, so
 * that no index on the time is needed; such an index would cost every claim. The age is that of the database's clock,
 * which also gave the key its time.
 */
export function createKeySweeper(options: KeySweeperOptions): Service & { removed: () => number } {
  const { pool, retentionMs, keysInPass, blocksInPass, pauseMs, idlePauseMs } = { ...defaults, ...options };
  const statement = sweepStatement(quotedSchema(options.schema));
  let block = 0;
  let removed = 0;
  let removedInRound = 0;

  async function runOnce(): Promise<PassResult> {
    const { rows } = await transaction(pool, async (tx) =>
      tx.query(statement, [`(${block},0)`, `(${block + blocksInPass},0)`, retentionMs, keysInPass]),
    );
    const count = Number(rows[0]?.['removed']);
    const blocks = Number(rows[0]?.['blocks']);
    removed += count;
    removedInRound += count;
    // There may be more of them in these blocks.
    if (count >= keysInPass) return 'busy';
    block += blocksInPass;
    if (block < blocks) return 'busy';
    const foundAny = removedInRound > 0;
    block = 0;
    removedInRound = 0;
    return foundAny ? 'busy' : 'idle';
  }

  async function run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const result = await runOnce();
      const pause = (result === 'idle' ? idlePauseMs : pauseMs) * (0.5 + Math.random());
      await delay(pause, undefined, { signal }).catch(() => {});
    }
  }

  return { runOnce, run, removed: () => removed };
}

function sweepStatement(schema: string): string {
  return `WITH gone AS (
      DELETE FROM ${schema}.idempotency_keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM ${schema}.idempotency_keys
        WHERE ctid >= $1::tid AND ctid < $2::tid AND created_at < clock_timestamp() - $3 * interval '1 millisecond'
        LIMIT $4))
      RETURNING id
    ), answers AS (
      DELETE FROM ${schema}.answers USING gone WHERE answers.id = gone.id
    )
    SELECT (SELECT count(*) FROM gone)::int AS removed,
           (pg_relation_size('${schema}.idempotency_keys') / current_setting('block_size')::int)::int AS blocks`;
}
