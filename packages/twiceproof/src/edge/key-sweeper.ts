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
  /** Pause between two passes, so that it never takes more than its share. Defaults to 20; five times that where nothing was old. */
  pauseMs?: number;
  /** A key may stay so long beyond its time: with that, those of one time go together. Defaults to 5,000. */
  slackMs?: number;
  /** A pass that failed, because the database was away for example; the next one comes after a minute. */
  onError?: (error: unknown) => void;
}

const defaults = { retentionMs: 72 * 3_600_000, keysInPass: 200, blocksInPass: 64, pauseMs: 20, slackMs: 5_000 };
/** On a wire that has fallen silent. */
const passWithinMs = 60_000;
const pauseAfterErrorMs = 60_000;
/** Nothing is left unseen for longer, whatever has moved keys to other blocks: VACUUM FULL, a restore, a clock. */
const seenEveryMs = 24 * 3_600_000;

/**
 * Removes keys that are older than the retention, with their answers. It walks through the table block by block, so
 * that no index on the time is needed; such an index would cost every claim. It remembers when the oldest key in each
 * stretch of blocks comes to its end, and does not look there before: what is added there is younger. The age is that of
 * the database's clock, which also gave the key its time, or of our own if that is behind.
 */
export function createKeySweeper(options: KeySweeperOptions): Service & { removed: () => number } {
  const { pool, retentionMs, keysInPass, blocksInPass, pauseMs, slackMs } = withDefaults(defaults, options);
  quotedSchema(options.schema); // A wrong name is known here, and not first in a pass.
  /** For each stretch of `blocksInPass` blocks, when to look at it: at once, where nobody has. */
  const dueAt = [0];
  let stretch = 0;
  let removed = 0;

  async function runOnce(): Promise<PassResult> {
    const due = nextDue();
    if (due === undefined) return 'idle';
    stretch = due;
    const from = stretch * blocksInPass;
    const { count, blocksInTable, oldestDueMs } = await removeFrom({ from, to: from + blocksInPass });
    removed += count;
    // Where a pass was full there may be more.
    if (count < keysInPass) dueAt[stretch] = Date.now() + Math.min(oldestDueMs, seenEveryMs) + slackMs;
    const stretches = Math.max(1, Math.ceil(blocksInTable / blocksInPass));
    while (dueAt.length < stretches) dueAt.push(0);
    dueAt.length = stretches;
    return 'busy';
  }

  /** From where we are, and round. */
  function nextDue(): number | undefined {
    const now = Date.now();
    const isDue = (at: number): boolean => at <= now;
    const ahead = dueAt.findIndex((at, n) => n >= stretch && isDue(at));
    const found = ahead === -1 ? dueAt.findIndex(isDue) : ahead;
    return found === -1 ? undefined : found;
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
      const before = removed;
      const pause = await runOnce().then(
        (result) => (result === 'idle' ? slackMs : pauseMs * (removed > before ? 1 : 5)),
        (error: unknown) => {
          options.onError?.(error);
          return pauseAfterErrorMs;
        },
      );
      await delay(pause * (0.5 + Math.random()), undefined, { signal }).catch(() => {});
    }
  }

  return { runOnce, run, removed: () => removed };
}
