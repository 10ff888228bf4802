import type { Pool, PoolClient } from '../connection.ts';

/**
 * A pool whose connections come within `ms`, and whose statements are answered within that, or fail. On a wire that has
 * fallen silent a client would wait for ever, unless its owner has thought of it.
 */
export function answeredWithin(pool: Pool, ms: number): Pool {
  return {
    connect: async () => {
      const connecting = pool.connect();
      const client = await within(ms, connecting).catch((error: unknown) => {
        connecting.then(
          (late) => late.release(),
          () => {},
        );
        throw error;
      });
      return watched(client, ms);
    },
    on: (event, listener) => pool.on?.(event, listener),
  };
}

/** For as long as it is lent: then it is as it was. */
function watched(client: PoolClient, ms: number): PoolClient {
  const { query, release } = client;
  client.query = async (...args) => within(ms, query.apply(client, args));
  client.release = (destroy) => {
    client.query = query;
    client.release = release;
    release.call(client, destroy);
  };
  return client;
}

async function within<T>(ms: number, answer: Promise<T>): Promise<T> {
  const { promise: silence, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    reject(Object.assign(new Error(`the database has not answered within ${ms} ms`), { code: 'ETIMEDOUT' }));
  }, ms);
  try {
    return await Promise.race([answer, silence]);
  } finally {
    clearTimeout(timer);
  }
}
