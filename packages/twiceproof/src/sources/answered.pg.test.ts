import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import type { Pool, PoolClient } from '../connection.ts';
import { migrate } from '../migrations/migrate.ts';
import { uuidv7 } from '../uuid.ts';
import { createPollSource } from './poll.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
pool.on('error', () => {});
after(async () => pool.end());
await migrate(pool);

const times = { publishDeadlineMs: 100, idleTimeoutMs: 5_000, watchdogMs: 6_000 };
const asked = { maxMessages: 10, waitMs: 0, signal: new AbortController().signal };
const silent = { code: 'ETIMEDOUT' };

/** A pool whose statements with this text are never answered, and how its connections were given back. */
function falling(text: string): { pool: Pool; destroyed: (boolean | undefined)[] } {
  const destroyed: (boolean | undefined)[] = [];
  const connect = async (): Promise<PoolClient> => {
    const client = await pool.connect();
    const query = client.query.bind(client) as PoolClient['query'];
    const isMeant = (statement: unknown): boolean => JSON.stringify(statement).includes(text);
    return {
      query: async (statement, values) => (isMeant(statement) ? new Promise(() => {}) : query(statement, values)),
      release: (destroy) => {
        destroyed.push(destroy);
        client.release(destroy);
      },
    };
  };
  return { pool: { connect }, destroyed };
}

test('a wire that falls silent ends in an error, at every statement, and its connection is not used again', async () => {
  await pool.query(
    `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload)
     VALUES (0, 't', 'a', $1, 'said', 'a1')`,
    [uuidv7()],
  );
  for (const text of ['relay_cursor c', 'BEGIN ISOLATION', 'pg_visible_in_snapshot']) {
    const world = falling(text);
    const source = createPollSource({ pool: world.pool, times: { ...times, idleTimeoutMs: 200, watchdogMs: 300 } });
    await assert.rejects(source.next(asked), silent, text);
    assert.equal(world.destroyed.at(-1), true, text);
  }
  const world = falling('SET prev =');
  const source = createPollSource({ pool: world.pool, times: { ...times, idleTimeoutMs: 200, watchdogMs: 300 } });
  const batch = await source.next(asked);
  await assert.rejects(batch!.advance({ done: 1, parked: [] }), silent);
  assert.equal(world.destroyed.at(-1), true);
});

test('a pool that has no connection to give ends in an error, and what it gives later goes back', async () => {
  const late = Promise.withResolvers<PoolClient>();
  const released: unknown[] = [];
  const source = createPollSource({
    pool: { connect: async () => late.promise },
    times: { publishDeadlineMs: 50, idleTimeoutMs: 100, watchdogMs: 200 },
  });
  await assert.rejects(source.next(asked), silent);
  late.resolve({
    query: async () => Promise.reject(new Error('nobody is here')),
    release: (destroy) => released.push(destroy),
  });
  await late.promise;
  await new Promise(setImmediate);
  assert.deepEqual(released, [undefined]);
});
