import { AsyncLocalStorage } from 'node:async_hooks';
import { TwiceproofError } from './errors.ts';
import type { Pool } from './connection.ts';

/** Pools that the code which runs now must not use, because it was given a transaction of one of them. */
const withinTransactionOf = new AsyncLocalStorage<Pool>();
const watched = new WeakSet<Pool>();
const isProduction = process.env['NODE_ENV'] === 'production';

/**
 * Runs a user's code that has been given a transaction, and catches it when it asks the same pool for another
 * connection: what it wrote there would stay when the transaction is rolled back. Not in production, where it would
 * cost something at each request and find nothing that tests have not found.
 */
export function onItsOwnConnection<T>(pool: Pool, work: () => Promise<T>): Promise<T> {
  if (isProduction) return work();
  watch(pool);
  return withinTransactionOf.run(pool, work);
}

/** Once for each pool: whoever asks it for a connection, in whichever way, is asked where he comes from. */
function watch(pool: Pool & { query?: unknown }): void {
  if (watched.has(pool)) return;
  watched.add(pool);
  for (const method of ['connect', 'query'] as const) {
    const original = pool[method];
    if (typeof original !== 'function') continue;
    const checked = function checked(this: unknown, ...parameters: unknown[]): unknown {
      if (withinTransactionOf.getStore() === pool) throw otherConnection(method);
      return Reflect.apply(original, this, parameters);
    };
    Object.defineProperty(pool, method, { value: checked, configurable: true, writable: true });
  }
}

function otherConnection(method: string): TwiceproofError {
  return new TwiceproofError('TP_OTHER_CONNECTION', `pool.${method}() was called inside a handler that has its own tx`);
}
