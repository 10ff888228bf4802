import { setTimeout as delay } from 'node:timers/promises';
import { connectWithin } from '../answered.ts';
import { isServerError, type Pool } from '../connection.ts';
import { withDefaults } from '../defaults.ts';
import { removeExpired } from '../idempotency/remove-expired.ts';
import { quotedSchema } from '../schema-name.ts';
import type { PassResult, Service } from '../service.ts';

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
  /** A pass that failed, because the database was away for example; the next one comes after `idlePauseMs`. */
  onError?: (error: unknown) => void;
}

const defaults = { retentionMs: 72 * 3_600_000, keysInPass: 200, blocksInPass: 64, pauseMs: 20, idlePauseMs: 60_000 };
/** On a wire that has fallen silent. */
const passWithinMs = 60_000;

/**
 * Removes keys that are older than the retention, with their answers. It walks through the table block by block, so
 * that no index on the time is needed; such an index would cost every claim. The age is that of the database's clock,
 * which also gave the key its time, or of our own if that is behind.
 */
export function createKeySweeper(options: KeySweeperOptions): Service & { removed: () => number } {
  const { pool, retentionMs, keysInPass, blocksInPass, pauseMs, idlePauseMs } = withDefaults(defaults, options);
  quotedSchema(options.schema); // A wrong name is known here, and not first in a pass.
  let block = 0;
  let removed = 0;
  let removedInRound = 0;

  async function runOnce(): Promise<PassResult> {
    const blocks = { from: block, to: block + blocksInPass };
    const { count, blocksInTable } = await removeFrom(blocks);
    removed += count;
    removedInRound += count;
    // There may be more of them in these blocks.
    if (count >= keysInPass) return 'busy';
    block += blocksInPass;
    if (block < blocksInTable) return 'busy';
    const foundAny = removedInRound > 0;
    block = 0;
    removedInRound = 0;
    return foundAny ? 'busy' : 'idle';
  }

  /** A statement that is a transaction by itself: where nothing is old it costs no id, and nothing is written. */
  async function removeFrom(blocks: { from: number; to: number }): ReturnType<typeof removeExpired> {
    const client = await connectWithin(pool, passWithinMs);
    try {
      const result = await removeExpired(client, { blocks, retentionMs, atMost: keysInPass, schema: options.schema });
      client.release();
      return result;
    } catch (error) {
      client.release(!isServerError(error));
      throw error;
    }
  }

  async function run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const result = await runOnce().catch((error: unknown) => {
        options.onError?.(error);
        return 'idle' as const;
      });
      const pause = (result === 'idle' ? idlePauseMs : pauseMs) * (0.5 + Math.random());
      await delay(pause, undefined, { signal }).catch(() => {});
    }
  }

  return { runOnce, run, removed: () => removed };
}
