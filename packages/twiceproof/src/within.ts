import { deferred } from './deferred.ts';

/** A timer of Node's that is longer ends at once. */
export const longestTimerMs = 2 ** 31 - 1;
/** For what is waited a little longer or shorter each time, or twice. */
export const longestPauseMs = 2 ** 30;

/**
 * The promise's result, or a failure of our own after that time; what comes of it later is nobody's. Without an abort
 * signal: one that ends a wait makes an error with its stack each time, and most waits are ended.
 */
export async function within<T>(ms: number, promise: Promise<T>, late: () => Error): Promise<T> {
  const lateness = deferred<never>();
  const timer = setTimeout(() => lateness.reject(late()), Math.max(ms, 0));
  try {
    return await Promise.race([promise, lateness.promise]);
  } finally {
    clearTimeout(timer);
  }
}
