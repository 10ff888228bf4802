import { failureOf } from '../failure.ts';
import type { Entry } from './group-queue.ts';
import { busy, isLockTimeout, type Reply } from './reply.ts';

/** What becomes of one intent of a batch. `again`: nothing yet; it is to come again. */
export type Settled = Reply | Error | 'again';

/** A statement that took too long: perhaps one of them is the reason. */
function isCancelled(error: Error): boolean {
  return (error as { code?: unknown }).code === '57014';
}

/**
 * What becomes of each entry, at the same index. Never rejects: an error of the batch is found out to be somebody's, by
 * splitting until the culprit stands alone. Each half may wait for locks half as long as the whole did, so that a lock
 * that is never given back does not hold the lane longer than twice `lockWaitMs`.
 */
export async function settleOrSplit<C>(
  batch: readonly Entry<C>[],
  lockWaitMs: number,
  settle: (batch: readonly Entry<C>[], lockWaitMs: number) => Promise<Settled[]>,
): Promise<Settled[]> {
  try {
    return await settle(batch, lockWaitMs);
  } catch (cause) {
    const error = cause instanceof Error ? cause : new Error(String(cause));
    if (batch.length === 1) return [isLockTimeout(error) ? busy : error];
    // A server that cannot be reached is nobody's fault, and halves would not reach it either.
    if (failureOf(error) !== 'unexpected' && !isCancelled(error)) return batch.map(() => error);
    const middle = Math.ceil(batch.length / 2);
    const halfMs = Math.ceil(lockWaitMs / 2);
    const first = await settleOrSplit(batch.slice(0, middle), halfMs, settle);
    return [...first, ...(await settleOrSplit(batch.slice(middle), halfMs, settle))];
  }
}
