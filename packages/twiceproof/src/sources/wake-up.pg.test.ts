import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { uuidv7 } from '../uuid.ts';
import { createPollSource } from './poll.ts';
import { createWakeUpSender, listenForWakeUps } from './wake-up.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
const never = new AbortController().signal;
/** If nothing wakes it, the test would wait for so long, and fail by its own time limit. */
const longMs = 600_000;

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'listener' });
  await client.connect();
  return client;
}

async function untilListening(): Promise<number> {
  for (;;) {
    const { rows } = await pool.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity WHERE application_name = 'listener' AND query LIKE 'LISTEN%' AND state = 'idle'`,
    );
    if (rows[0]) return rows[0].pid;
  }
}

test(
  'a wake-up ends the wait, also one that came while nobody was waiting; many are sent as few',
  { timeout: 30_000 },
  async (t) => {
    const wakeUps = listenForWakeUps({ connect });
    t.after(async () => wakeUps.close());
    await untilListening();
    let sent = 0;
    const counting = {
      query: async (text: string) => {
        sent += 1;
        return pool.query(text);
      },
    };
    const sender = createWakeUpSender({ pool: counting, everyMs: 50 });
    const waiting = wakeUps.wait(longMs, never);
    sender.wake();
    await waiting;
    assert.equal(sent, 1);
    for (let n = 0; n < 1_000; n += 1) sender.wake();
    await wakeUps.wait(longMs, never);
    assert.equal(sent, 2, 'a thousand wake-ups are one statement');
    await pool.query('NOTIFY twiceproof');
    await pool.query('SELECT 1');
    await wakeUps.wait(longMs, never);
  },
);

test(
  'a connection that is lost is made again, and the wait goes by the clock meanwhile',
  { timeout: 30_000 },
  async (t) => {
    const wakeUps = listenForWakeUps({ connect });
    t.after(async () => wakeUps.close());
    const pid = await untilListening();
    // It answers when the backend has gone: one that is still going looks as if it listened.
    await pool.query('SELECT pg_terminate_backend($1, 10_000)', [pid]);
    await wakeUps.wait(1, never);
    assert.notEqual(await untilListening(), pid);
    const waiting = wakeUps.wait(longMs, never);
    await pool.query('NOTIFY twiceproof');
    await waiting;
  },
);

test('the wait ends with its signal', { timeout: 30_000 }, async (t) => {
  const wakeUps = listenForWakeUps({ connect });
  t.after(async () => wakeUps.close());
  await untilListening();
  const stop = new AbortController();
  const waiting = wakeUps.wait(longMs, stop.signal);
  stop.abort();
  await waiting;
});

test('a connection that cannot listen is closed, before another one is made', { timeout: 30_000 }, async () => {
  let [made, closed] = [0, 0];
  const twice = Promise.withResolvers<void>();
  const wakeUps = listenForWakeUps({
    connect: async () => {
      made += 1;
      assert.equal(closed, made - 1);
      if (made === 2) twice.resolve();
      return {
        query: async () => Promise.reject(new Error('cannot LISTEN on a standby')),
        on: () => {},
        end: async () => {
          closed += 1;
        },
      };
    },
  });
  await twice.promise;
  await wakeUps.close();
  assert.equal(closed, made);
});

test('a shard that was read a moment ago is read again at a wake-up, and not when its interval is over', async () => {
  await migrate(pool);
  const append = async (): Promise<unknown> =>
    pool.query(
      `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload)
       VALUES (0, 't', 'a', $1, 'said', 'a1')`,
      [uuidv7()],
    );
  let waits = 0;
  const wakeUps = {
    wait: async () => {
      waits += 1;
      if (waits > 3) throw new Error('it was woken and has not read');
      return true;
    },
    close: async () => {},
  };
  const source = createPollSource({ pool, pollIntervalMs: longMs, wakeUps });
  for (let n = 0; n < 2; n += 1) {
    await append();
    const batch = await source.next({ maxMessages: 10, waitMs: longMs, signal: never });
    await batch!.advance({ done: 1, parked: [] });
  }
  assert.equal(waits, 1);
});

test('waits that nobody has ended leave nothing behind', { timeout: 30_000 }, async (t) => {
  const wakeUps = listenForWakeUps({ connect });
  t.after(async () => wakeUps.close());
  await untilListening();
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const waits = 20_000;
  const heapBytes = async (): Promise<number> => {
    await Promise.all(Array.from({ length: waits }, async () => wakeUps.wait(1, never)));
    collect();
    return process.memoryUsage().heapUsed;
  };
  await heapBytes();
  const [before, behind] = [await heapBytes(), await heapBytes()];
  assert.ok(behind - before < 100 * waits, `${Math.round((behind - before) / waits)} bytes for each`);
});
