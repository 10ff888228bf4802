import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { createConsumer } from 'twiceproof/consumer';
import { createInboxKeeper } from 'twiceproof/consumer/inbox-keeper';
import { migrate } from 'twiceproof/migrations';
import type { OutgoingRecord } from 'twiceproof/transport';
import { createMemoryBroker } from 'twiceproof/transports/memory';
import { withDuplicates } from './duplicates.ts';
import { eventRecord, until } from './program-under-test.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 6 });
after(async () => pool.end());
/** For those who look on: a handler is not given another connection of the pool. */
const witness = new pg.Pool({ connectionString: url, max: 2 });
after(async () => witness.end());
await migrate(pool);

/**
 * A batch that fails is halved, and then a message of another lane may be the last of a part. Its offset there must not
 * become the position here: after a crash between two parts everything up to it would be skipped.
 */
test('what is mixed in from another lane never moves the position of this one', async () => {
  const topic = 'order.events';
  const broker = createMemoryBroker();
  broker.createTopic(topic, { partitions: 2 });
  const plain = broker.transport();
  const orderIds: string[][] = [[], []];
  const ends = [0, 0];
  const publish = async (records: readonly OutgoingRecord[]): Promise<void> => {
    for (const [n, outcome] of (await plain.publisher().publish(records)).entries()) {
      assert.ok(outcome.outcome === 'acknowledged');
      const { partition, offset } = outcome.position!;
      orderIds[partition]!.push(records[n]!.key);
      ends[partition] = Number(offset) + 1;
    }
  };
  await publish(Array.from({ length: 40 }, () => eventRecord(topic)));
  /** So many messages of orders that are in this lane. */
  const ofLane = (lane: number, count: number): OutgoingRecord[] =>
    Array.from({ length: count }, (_, n) =>
      eventRecord(topic, { orderId: orderIds[lane]![n % orderIds[lane]!.length]!, version: 2 }),
    );

  await createInboxKeeper({ pool, ttlMs: 3_600_000, partitionMs: 3_600_000, aheadMs: 3_600_000 }).runOnce();
  const wrong: unknown[] = [];
  let [injected, first] = [0, 0];
  const stop = new AbortController();
  const consumer = createConsumer({
    pool,
    transport: withDuplicates(plain, { rate: 1, seed: 11, onInjected: (count) => (injected += count) }),
    name: 'mixed',
    topics: [topic],
    batch: 7,
    onFailure: 'dead-letter',
    handler: {
      set: async (tx, messages) => {
        const { rows } = await tx.query(
          `SELECT partition, next_offset::int AS next FROM twiceproof.inbox_position WHERE consumer = 'mixed'`,
        );
        wrong.push(...rows.filter(({ partition, next }) => Number(next) > ends[Number(partition)]!));
        // So that most batches are halved, down to the last.
        if (messages.some(({ id }) => id.endsWith('0') || id.endsWith('5'))) throw new Error('not this one');
      },
    },
    observe: (pass) => (first += pass.first + (pass.held.dead ?? 0)),
  });
  const running = consumer.run(stop.signal);
  const allProcessed = async (): Promise<boolean> => first >= ends[0]! + ends[1]!;
  // One lane is far ahead of the other, so that an offset of the one is none of the other.
  await publish(ofLane(0, 300));
  await until('the first are processed', allProcessed);
  for (let n = 0; n < 10; n += 1) await publish([...ofLane(0, 20), ...ofLane(1, 10)]);
  await until('all are processed', allProcessed);
  stop.abort();
  await running;
  await plain.close();
  assert.ok(injected > 100, String(injected));
  assert.deepEqual(wrong, []);
  const { rows } = await pool.query<{ next: number }>(
    "SELECT next_offset::int AS next FROM twiceproof.inbox_position WHERE consumer = 'mixed' ORDER BY partition",
  );
  assert.deepEqual(
    rows.map(({ next }) => next),
    ends,
  );
  assert.equal(first, ends[0]! + ends[1]!);
});

/** The handler of one waits, its inbox row written, until somebody's insert waits for that row. */
test('two transactions have the same id at the same moment: one waits for the other, and finds a duplicate', async () => {
  const topic = 'concurrent.events';
  const broker = createMemoryBroker();
  broker.createTopic(topic, { partitions: 2 });
  const plain = broker.transport();
  const records = Array.from({ length: 60 }, () => eventRecord(topic));
  await plain.publisher().publish(records);
  await createInboxKeeper({ pool, ttlMs: 3_600_000, partitionMs: 3_600_000, aheadMs: 3_600_000 }).runOnce();
  await pool.query('CREATE TABLE ran (msg_id uuid)');
  let [met, first, duplicates] = [0, 0, 0];
  const somebodyWaits = async (): Promise<boolean> => {
    const { rows } = await witness.query<{ waits: boolean }>(
      `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
         AND query LIKE '%INSERT INTO%inbox (msg_id%') AS waits`,
    );
    return rows[0]!.waits;
  };
  const stop = new AbortController();
  const consumer = createConsumer({
    pool,
    transport: withDuplicates(plain, { rate: 1, seed: 7, onInjected: () => {} }),
    name: 'concurrent',
    topics: [topic],
    batch: 10,
    workers: 2,
    handler: {
      each: async (tx, { id }) => {
        await tx.query('INSERT INTO ran (msg_id) VALUES ($1)', [id]);
        const deadline = performance.now() + 200;
        while (met < 3 && performance.now() < deadline) if (await somebodyWaits()) met += 1;
      },
    },
    observe: (pass) => {
      first += pass.first;
      duplicates += pass.duplicates;
    },
  });
  const running = consumer.run(stop.signal);
  await until('all are processed', async () => first >= records.length);
  stop.abort();
  await running;
  await plain.close();
  assert.ok(met >= 3, `seen ${met} times that one waits`);
  assert.ok(duplicates > 0);
  const { rows } = await pool.query<{ times: number; ids: number }>(
    'SELECT count(*)::int AS times, count(DISTINCT msg_id)::int AS ids FROM ran',
  );
  assert.deepEqual(rows[0], { times: records.length, ids: records.length });
});
