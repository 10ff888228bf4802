import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import type { Subscription, Transport } from '../transport.ts';
import { createMemoryBroker } from '../transports/memory.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { toRecord, type ReceivedMessage } from '../wire.ts';
import { createConsumer, type ConsumerOptions, type ConsumerPass, type Handler } from './consumer.ts';
import { createInboxKeeper } from './inbox-keeper.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
pool.on('error', () => {});
after(async () => pool.end());
await migrate(pool);
await createInboxKeeper({ pool, ttlMs: 3_600_000, partitionMs: 3_600_000 }).runOnce();
await pool.query(
  'CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, name text, key text, text text, xid xid8)',
);

const broker = createMemoryBroker();
const transport = broker.transport();
after(async () => transport.close());

const keys = Array.from({ length: 12 }, (_, n) => `key-${n}`);
const messages = 60;

let name = '';
let tests = 0;
beforeEach(async () => {
  name = `test-${(tests += 1)}`;
  broker.createTopic(name, { partitions: 3 });
  const texts = Array.from({ length: messages }, (_, n) => ({ key: keys[n % keys.length]!, text: String(n) }));
  await transport.publisher().publish(
    texts.map(({ key, text }) => {
      const message = { topic: name, aggregateId: key, type: 'said', payload: Buffer.from(text) };
      return toRecord({ ...message, id: uuidv7(), createdAt: new Date() }, '/test');
    }),
  );
});

const textOf = ({ payload }: ReceivedMessage): string => Buffer.from(payload).toString();

async function write(tx: Tx, those: readonly ReceivedMessage[]): Promise<void> {
  await tx.query(
    `INSERT INTO effects (name, key, text, xid)
     SELECT $1, key, text, pg_current_xact_id() FROM unnest($2::text[], $3::text[]) AS m (key, text)`,
    [name, those.map(({ aggregateId }) => aggregateId), those.map(textOf)],
  );
}

/** Until as many are dealt with as were published. */
async function consume(
  handler: Handler,
  through: Transport = transport,
  on = pool,
  options: Partial<ConsumerOptions> = { workers: 1 },
): Promise<ConsumerPass[]> {
  const passes: ConsumerPass[] = [];
  const stopping = new AbortController();
  const observe = (pass: ConsumerPass): number => passes.push(pass);
  const consumer = createConsumer({
    pool: on,
    transport: through,
    name,
    topics: [name],
    handler,
    observe,
    ...options,
  });
  const running = consumer.run(stopping.signal);
  const deadline = performance.now() + 20_000;
  while (passes.reduce((sum, { received }) => sum + received, 0) < messages) {
    assert.ok(performance.now() < deadline, 'not all of them were dealt with');
    await delay(5);
  }
  stopping.abort();
  await running;
  return passes;
}

/** Each of its messages once, and those of a key in their order. */
async function assertWhole(except: readonly string[] = []): Promise<void> {
  const { rows } = await pool.query<{ key: string; text: string }>(
    'SELECT key, text FROM effects WHERE name = $1 ORDER BY n',
    [name],
  );
  for (const [at, key] of keys.entries()) {
    const wanted = Array.from({ length: messages / keys.length }, (_, n) => String(at + n * keys.length));
    const found = rows.filter((row) => row.key === key).map(({ text }) => text);
    assert.deepEqual(
      found,
      wanted.filter((text) => !except.includes(text)),
      key,
    );
  }
}

async function positions(): Promise<number> {
  const { rows } = await pool.query<{ sum: number }>(
    'SELECT sum(next_offset)::int AS sum FROM twiceproof.inbox_position WHERE consumer = $1',
    [name],
  );
  return rows[0]!.sum;
}

test('a handler of sets gets what all lanes have: one transaction, and the position of each', async () => {
  const passes = await consume({ set: write });
  await assertWhole();
  assert.deepEqual(
    passes.map(({ lanes, received, first, transactions }) => [lanes.length, received, first, transactions]),
    [[3, messages, messages, 1]],
  );
  assert.equal(await positions(), messages);
});

test('a handler of each gets one lane at a time', async () => {
  const passes = await consume({ each: async (tx, message) => write(tx, [message]) });
  await assertWhole();
  assert.deepEqual(
    passes.map(({ lanes }) => lanes.length),
    [1, 1, 1],
  );
});

test('by default one transaction is under way for a handler of sets, and two are for a handler of each', async () => {
  let [inside, most] = [0, 0];
  const enter = (): number => (most = Math.max(most, (inside += 1)));
  const set = async (): Promise<void> => {
    enter();
    await delay(2);
    inside -= 1;
  };
  const passes = await consume({ set }, transport, pool, { batch: 5 });
  assert.ok(passes.length >= messages / 5);
  assert.equal(most, 1);

  const both = Promise.withResolvers<void>();
  const each = async (): Promise<void> => {
    if (enter() === 2) both.resolve();
    await both.promise;
    inside -= 1;
  };
  name = `${name}-each`; // Another consumer, on the same topic.
  const topics = [name.slice(0, -'-each'.length)];
  await consume({ each }, transport, pool, { topics, batch: 5 });
  assert.equal(most, 2);
});

test('the broker is told of a lane when its effects are committed', async () => {
  let settled = 0;
  const untold: number[] = [];
  const subscribe: Transport['subscribe'] = async (options) => {
    const subscription = await transport.subscribe(options);
    const settle: Subscription['settle'] = async (deliveries) => {
      settled += deliveries.length;
      const { rows } = await pool.query<{ count: number }>(
        'SELECT count(*)::int AS count FROM effects WHERE name = $1',
        [name],
      );
      untold.push(rows[0]!.count - settled);
      return subscription.settle(deliveries);
    };
    return { ...subscription, settle };
  };
  await consume({ each: async (tx, message) => write(tx, [message]) }, { ...transport, subscribe });
  assert.deepEqual(untold, [0, 0, 0]);
});

test('if one of them cannot be processed each lane goes its own way, and it alone is held with those behind it', async () => {
  const set = async (tx: Tx, those: readonly ReceivedMessage[]): Promise<void> => {
    await write(tx, those);
    if (those.some((message) => textOf(message) === '17')) throw new TypeError('cannot');
  };
  const passes = await consume({ set });
  assert.equal(passes.length, 3);
  assert.ok(passes.every(({ lanes }) => lanes.length === 1));
  await assertWhole(['17', '29', '41', '53']);
  assert.equal(await positions(), messages);
  const { rows } = await pool.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM twiceproof.held WHERE consumer = $1',
    [name],
  );
  assert.equal(rows[0]!.count, 4);
});

test('a message that takes too long is found by halving, and meanwhile the other lanes go on', async () => {
  // Of the lane that is the first to go its own way.
  let culprit: string | undefined;
  const set = async (tx: Tx, those: readonly ReceivedMessage[]): Promise<void> => {
    culprit ??= textOf(those[0]!);
    if (those.some((message) => textOf(message) === culprit)) await new Promise(() => {});
    await write(tx, those);
  };
  const order: string[] = [];
  const observe = ({ lanes: [lane], held, received }: ConsumerPass): void => {
    order.push(`${received} of ${lane!.partition}, held ${held.parked ?? 0}`);
  };
  const stopping = new AbortController();
  const options = { handlerTimeoutMs: 300, retryForMs: 0, observe };
  const running = createConsumer({ pool, transport, name, topics: [name], handler: { set }, ...options }).run(
    stopping.signal,
  );
  const deadline = performance.now() + 20_000;
  while (order.length < 3) {
    assert.ok(performance.now() < deadline, order.join('; '));
    await delay(5);
  }
  stopping.abort();
  await running;
  // The joint one and then each of them by itself: the one with the culprit is the last to be through.
  assert.ok(order[0]!.endsWith('held 0') && order[1]!.endsWith('held 0'), order.join('; '));
  assert.match(order[2]!, /held 5$/);
  const ofItsKey = Array.from({ length: messages }, (_, n) => String(n)).filter(
    (text) => Number(text) % keys.length === Number(culprit) % keys.length,
  );
  await assertWhole(ofItsKey);
});

test('after a failure nobody waits for the next fetch', async () => {
  let failedAt: number | undefined;
  const set = async (tx: Tx, those: readonly ReceivedMessage[]): Promise<void> => {
    await write(tx, those);
    if (!those.some((message) => textOf(message) === '17')) return;
    failedAt ??= performance.now();
    throw new TypeError('cannot');
  };
  // Nothing more comes, so whoever waits for more waits in vain, for a second.
  await consume({ set });
  assert.ok(performance.now() - failedAt! < 900);
});

test('a handler that fails only with several lanes at once is told, and its transaction counted', async () => {
  const failure = new TypeError('only one lane, please');
  const set = async (tx: Tx, those: readonly ReceivedMessage[]): Promise<void> => {
    if (those.length === messages) throw failure;
    await write(tx, those);
  };
  const troubles: unknown[] = [];
  const passes = await consume({ set }, transport, pool, { onTrouble: (error) => troubles.push(error) });
  await assertWhole();
  assert.deepEqual(troubles, [failure]);
  assert.equal(passes.length, 3);
  assert.equal(
    passes.reduce((sum, { transactions }) => sum + transactions, 0),
    4,
  );
});

test('if one of the lanes is taken away before COMMIT nothing of any of them is committed; all come again', async () => {
  let calls = 0;
  const [running, dealtOut] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const set = async (tx: Tx, those: readonly ReceivedMessage[]): Promise<void> => {
    calls += 1;
    await write(tx, those);
    running.resolve();
    await dealtOut.promise;
  };
  const consumed = consume({ set });
  await running.promise;
  // Somebody joins the group: all lanes are dealt out anew.
  await (await transport.subscribe({ group: name, topics: [name] })).close();
  dealtOut.resolve();
  await consumed;
  assert.ok(calls > 1);
  await assertWhole();
});

test('names of statements that a pooler does not carry along are done without, and nothing is done twice', async () => {
  const single = new pg.Pool({ connectionString: url, max: 1 });
  const named = async (): Promise<number> => (await single.query('SELECT FROM pg_prepared_statements')).rows.length;
  try {
    const counts: number[] = [];
    const handler: Handler = {
      each: async (tx, message) => {
        const { rows } = await tx.query('SELECT count(*)::int AS count FROM pg_prepared_statements');
        counts.push(Number(rows[0]!['count']));
        // Gone with the end of this transaction, as it were: the next one is on another connection.
        await tx.query('DEALLOCATE ALL');
        await write(tx, [message]);
      },
    };
    await consume(handler, transport, single);
    await assertWhole();
    assert.equal(counts[0], 2, 'positions and inbox');
    assert.equal(counts.at(-1), 0);
    assert.equal(await named(), 0);
  } finally {
    await single.end();
  }
});
