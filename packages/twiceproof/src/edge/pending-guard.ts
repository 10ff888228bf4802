import { setTimeout as delay } from 'node:timers/promises';
import { withDefaults } from '../defaults.ts';
import { countPending } from '../outbox/pending.ts';
import { quotedSchema } from '../schema-name.ts';
import type { PassResult, Service } from '../service.ts';
import { transaction, type Pool } from '../transaction.ts';

export interface PendingGuardOptions {
  pool: Pool;
  /** Defaults to `twiceproof`. */
  schema?: string;
  /** From so many unpublished messages on, new requests are told to come again. Defaults to 5,000,000. */
  maxPending?: number;
  /** Defaults to 1,000. */
  pollIntervalMs?: number;
  /** It could not count, and so admits what it admitted before. */
  onError?(error: unknown): void;
}

const defaults = { maxPending: 5_000_000, pollIntervalMs: 1_000 };

/**
 * While the broker is away the edge goes on: what it accepts waits in the outbox. This puts an end to that before the
 * disk does. It looks once in a while and not at each request, so the limit is passed by what comes in between.
 */
export function createPendingGuard(options: PendingGuardOptions): Service & { admits: () => boolean } {
  const { pool, schema, maxPending, pollIntervalMs } = withDefaults(defaults, options);
  quotedSchema(options.schema); // A wrong name is known here, and not first in a pass.
  let admits = true;

  async function runOnce(): Promise<PassResult> {
    const pending = await transaction(pool, (tx) => countPending(tx, maxPending, schema));
    admits = pending < maxPending;
    return 'idle';
  }

  async function run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const began = performance.now();
      await runOnce().catch((error: unknown) => options.onError?.(error));
      // Counting takes longer the more is pending: never more than a twentieth of the time.
      const pauseMs = Math.max(pollIntervalMs, 20 * (performance.now() - began));
      await delay(pauseMs * (0.75 + Math.random() / 2), undefined, { signal }).catch(() => {});
    }
  }

  return { runOnce, run, admits: () => admits };
}
