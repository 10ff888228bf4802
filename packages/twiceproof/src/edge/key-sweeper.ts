import { setTimeout as delay } from 'node:timers/promises';
import { connectWithin } from '../answered.ts';
import { isServerError, type Pool } from '../connection.ts';
import { withDefaults } from '../defaults.ts';
import { TwiceproofError } from '../errors.ts';
import { removeExpired, type Removed } from '../idempotency/remove-expired.ts';
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
  /** Pause between two passes, so that it never takes more than its share. Defaults to 20; where nothing was old, five times that. */
  pauseMs?: number;
  /** It waits so long beyond the end of a key, so that those of one time go together. Defaults to 5,000. */
  slackMs?: number;
  /** A pass that failed, because the database was away for example; the next one comes after a minute. */
  onError?: (error: unknown) => void;
}

const defaults = { retentionMs: 72 * 3_600_000, keysInPass: 200, blocksInPass: 64, pauseMs: 20, slackMs: 5_000 };
/** On a wire that has fallen silent. */
const passWithinMs = 60_000;
const pauseAfterErrorMs = 60_000;
/** Nothing is left unseen for longer, whatever has moved keys to other blocks or a clock to another time. */
const seenEveryMs = 24 * 3_600_000;

/**
 * Removes keys that are older than the retention, with their answers. It walks through the table block by block, so
 * that no index on the time is needed; such an index would cost every claim. It remembers when the oldest key in each
 * stretch of blocks comes to its end, and does not look there before: what is added there is younger. The age is that of
 * the database's clock, which also gave the key its time, or of our own if that is behind.
 */
export function createKeySweeper(options: KeySweeperOptions): Service & { removed: () => number } {
  const { pool, retentionMs, keysInPass, blocksInPass, pauseMs, slackMs } = withDefaults(defaults, options);
  for (const [name, value] of Object.entries({ keysInPass, blocksInPass })) {
    if (Number.isInteger(value) && value > 0) continue;
    throw new TwiceproofError('TP_OPTION', `${name} is a whole number above 0, not ${value}`);
  }
  quotedSchema(options.schema); // A wrong name is known here, and not first in a pass.
  /** For each stretch of `blocksInPass` blocks, when to look at it again. Those behind its end were not seen yet. */
  const dueAt: number[] = [];
  let stretches = 1;
  let removed = 0;

  async function runOnce(): Promise<PassResult> {
    const stretch = nextStretch();
    if (stretch === undefined) return 'idle';
    const from = stretch * blocksInPass;
    const seen = await removeFrom({ from, to: from + blocksInPass });
    removed += seen.removed;
    dueAt[stretch] = Date.now() + pauseFor(seen);
    stretches = Math.max(1, Math.ceil(seen.blocksInTable / blocksInPass));
    dueAt.length = Math.min(dueAt.length, stretches);
    return 'busy';
  }

  function pauseFor({ found, removed: gone, oldestDueMs }: Removed): number {
    if (found < keysInPass && gone === found) return Math.min(oldestDueMs, seenEveryMs) + slackMs;
    // There are more; if another one is removing them, it is left to do so.
    return gone > 0 ? 0 : slackMs;
  }

  /** The one that is longest due; else the next one that was not seen yet. */
  function nextStretch(): number | undefined {
    const now = Date.now();
    let first: number | undefined;
    for (const [n, at] of dueAt.entries()) {
      // One that is due too far in the future was looked at while the clock was ahead.
      const isDue = at <= now || at > now + seenEveryMs + slackMs;
      if (isDue && (first === undefined || at < dueAt[first]!)) first = n;
    }
    return first ?? (dueAt.length < stretches ? dueAt.length : undefined);
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
        (result) => (result === 'idle' ? Math.max(slackMs, pauseMs) : pauseMs * (isFinding(before) ? 1 : 5)),
        (error: unknown) => {
          options.onError?.(error);
          return pauseAfterErrorMs;
        },
      );
      await delay(pause * (0.5 + Math.random()), undefined, { signal }).catch(() => {});
    }
  }

  /** Whoever has not found the first one yet is in a hurry too. */
  function isFinding(before: number): boolean {
    return removed > before || removed === 0;
  }

  return { runOnce, run, removed: () => removed };
}
