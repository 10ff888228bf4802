import { setTimeout as delay } from 'node:timers/promises';

/** Whether it does; rejects as it does. */
export async function endsWithin(ms: number, work: Promise<unknown>): Promise<boolean> {
  const timer = new AbortController();
  const late = delay(ms, false, { signal: timer.signal }).catch(() => false);
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    timer.abort();
    work.catch(() => {});
  }
}
