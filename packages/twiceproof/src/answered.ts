import { connectQuietly, type Pool, type PoolClient } from './connection.ts';
import { within } from './within.ts';

/**
 * A connection that comes within `ms`, and whose statements are answered within that, or fail. On a wire that has fallen
 * silent a client would wait for ever, unless its owner has thought of it.
 */
export async function connectWithin(pool: Pool, ms: number): Promise<PoolClient> {
  const connecting = connectQuietly(pool);
  const client = await answerWithin(ms, connecting).catch((error: unknown) => {
    connecting.then(
      (late) => late.release(),
      () => {},
    );
    throw error;
  });
  return watched(client, ms);
}

export function answeredWithin(pool: Pool, ms: number): Pool {
  return { connect: async () => connectWithin(pool, ms) };
}

/** For as long as it is lent: then it is as it was. */
function watched(client: PoolClient, ms: number): PoolClient {
  const { query, release } = client;
  client.query = async (...args) => answerWithin(ms, query.apply(client, args));
  client.release = (destroy) => {
    client.query = query;
    client.release = release;
    release.call(client, destroy);
  };
  return client;
}

/** What a silent wire comes to. */
class Silence extends Error {
  readonly code = 'ETIMEDOUT';
}

async function answerWithin<T>(ms: number, answer: Promise<T>): Promise<T> {
  return within(ms, answer, () => new Silence(`the database has not answered within ${ms} ms`));
}
