import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { createOutbox } from '../outbox/append.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { groupOperation, type OperationReply } from './operation.ts';
import type { GroupEdgeOptions } from './group.ts';

const { url } = await testDatabase();
/** Two pools stand for two processes: nothing in memory is shared but the database. */
const pools = [0, 1].map(() => new pg.Pool({ connectionString: url, max: 4 }));
const [pool] = pools as [pg.Pool, pg.Pool];
after(async () => Promise.all(pools.map(async (each) => each.end())));
await migrate(pool);
await pool.query(
  'CREATE TABLE orders (order_id uuid PRIMARY KEY, name text NOT NULL, amount int NOT NULL CHECK (amount <> 13))',
);
await pool.query('CREATE TABLE counters (name text PRIMARY KEY, version int NOT NULL DEFAULT 0)');
const outbox = createOutbox({ topics: ['order.events'] });

interface Create {
  name: string;
  amount: number;
}
interface Created {
  order_id: string;
  status: string;
}

/** Sizes of the batches that reached the effects. */
let batches: number[] = [];

async function createOrders(tx: Tx, commands: readonly Create[]) {
  batches.push(commands.length);
  if (commands.some(({ amount }) => amount === 666)) throw new Error('a bug in the operation');
  const ids = commands.map(() => uuidv7());
  await tx.query('INSERT INTO orders SELECT * FROM unnest($1::uuid[], $2::text[], $3::int[])', [
    ids,
    commands.map(({ name }) => name),
    commands.map(({ amount }) => amount),
  ]);
  await outbox.append(
    tx,
    ids.map((id) => ({ topic: 'order.events', aggregateId: id, type: 'order.created', payload: Buffer.from(id) })),
  );
  return commands.map(({ amount }, n) =>
    amount < 0
      ? { code: 422, result: { order_id: ids[n]!, status: 'refused' } }
      : { code: 201, result: { order_id: ids[n]!, status: 'created' } },
  );
}

function orders(n = 0, options: Partial<GroupEdgeOptions<Create>> = {}) {
  return groupOperation<Create, Created>({ pool: pools[n]!, name: 'orders.create', ...options, effects: createOrders });
}

function resultOf(reply: OperationReply<Created>): Created {
  assert.ok(reply.outcome === 'answered' && reply.result, reply.outcome);
  return reply.result;
}

async function counts(name: string): Promise<{ orders: number; messages: number }> {
  const { rows } = await pool.query<{ orders: number; messages: number }>(
    `SELECT count(*)::int AS orders, (SELECT count(*)::int FROM twiceproof.outbox o JOIN orders ON o.aggregate_id = order_id::text WHERE name = $1) AS messages
       FROM orders WHERE name = $1`,
    [name],
  );
  return rows[0]!;
}

const alice = (key: string) => ({ principal: 'alice', key });

test('many keys, each asked for several times at once in two processes: one order, one message, one answer for each key', async () => {
  batches = [];
  const operations = [orders(0), orders(1)];
  const asked = Array.from({ length: 1_200 }, (_, n) => ({
    key: `key-${n % 300}`,
    operation: operations[n % 7 < 3 ? 0 : 1]!,
  }));
  const replies = await Promise.all(
    asked.map(async ({ key, operation }) => resultOf(await operation.run(alice(key), { name: 'many', amount: 1 }))),
  );
  const byKey = Map.groupBy(replies, (_, n) => asked[n]!.key);
  for (const [key, same] of byKey) assert.equal(new Set(same.map(({ order_id }) => order_id)).size, 1, key);
  assert.equal(new Set(replies.map(({ order_id }) => order_id)).size, 300);
  assert.deepEqual(await counts('many'), { orders: 300, messages: 300 });
  assert.ok(Math.max(...batches) > 20, `they went in batches: ${batches.join(' ')}`);
});

test('a batch is what has gathered while the one before was under way', async () => {
  batches = [];
  const operation = orders();
  await Promise.all(
    Array.from({ length: 600 }, async (_, n) => operation.run(alice(`gather-${n}`), { name: 'gather', amount: 1 })),
  );
  assert.deepEqual(batches, [96, 96, 96, 96, 96, 96, 24]);
});

test('one bad intent does not hurt its neighbours, whether the database or the code refuses it', async () => {
  const operation = orders();
  const replies = await Promise.allSettled(
    Array.from({ length: 64 }, async (_, n) =>
      operation.run(alice(`bad-${n}`), { name: 'bad', amount: n === 30 ? 13 : n === 50 ? 666 : 1 }),
    ),
  );
  const failed = replies.flatMap((reply, n) => (reply.status === 'rejected' ? [[n, String(reply.reason)]] : []));
  assert.equal(failed.length, 2);
  assert.match(String(failed[0]), /^30,.*violates check constraint/);
  assert.match(String(failed[1]), /^50,Error: a bug in the operation/);
  assert.deepEqual(await counts('bad'), { orders: 62, messages: 62 });
  const again = await operation.run(alice('bad-30'), { name: 'bad', amount: 1 });
  assert.equal(again.outcome, 'answered', 'its key is free');
});

test('what the business refuses is an answer, and is replayed', async () => {
  for (const replayed of [false, true]) {
    const reply = await orders().run(alice('refused'), { name: 'refused', amount: -1 });
    assert.ok(reply.outcome === 'answered');
    assert.deepEqual([reply.code, reply.result?.status, reply.replayed], [422, 'refused', replayed]);
  }
});

test('another request under the same key is a mismatch: in the same batch, in a later one, in another process', async () => {
  const operation = orders();
  const [first, beside] = await Promise.all(
    [1, 2].map(async (amount) => operation.run(alice('mismatch'), { name: 'mismatch', amount })),
  );
  assert.deepEqual([first?.outcome, beside?.outcome], ['answered', 'mismatch']);
  assert.equal((await operation.run(alice('mismatch'), { name: 'mismatch', amount: 3 })).outcome, 'mismatch');
  assert.equal(
    (await orders(1).run(alice('mismatch'), { amount: 1, name: 'mismatch' })).outcome,
    'answered',
    'the order of fields does not matter',
  );
  assert.equal(
    (await operation.run({ principal: 'bob', key: 'mismatch' }, { name: 'mismatch', amount: 3 })).outcome,
    'answered',
  );
});

test('too many that wait are told to come again, and nothing of them is done', async () => {
  const operation = orders(0, { maxQueue: 10 });
  const replies = await Promise.all(
    Array.from({ length: 30 }, async (_, n) => operation.run(alice(`full-${n}`), { name: 'full', amount: 1 })),
  );
  const done = replies.filter(({ outcome }) => outcome === 'answered').length;
  assert.equal(replies.filter(({ outcome }) => outcome === 'busy').length, 30 - done);
  assert.ok(done >= 10 && done < 30);
  assert.equal((await counts('full')).orders, done);
});

test('an old UUIDv7 that is not known is expired, and one that is known is replayed, in a batch with others', async () => {
  const bornAt = Date.now() - 80 * 3_600_000;
  const [known, unknown] = [uuidv7(bornAt), uuidv7(bornAt)];
  await orders(0, { now: () => bornAt }).run(alice(known), { name: 'old', amount: 1 });
  const operation = orders();
  const replies = await Promise.all(
    [known, unknown, 'fresh'].map(async (key) => operation.run(alice(key), { name: 'old', amount: 1 })),
  );
  assert.deepEqual(
    replies.map(({ outcome }) => outcome),
    ['answered', 'expired', 'answered'],
  );
  assert.equal((await counts('old')).orders, 2);
});

test('exclusive commands never share a batch and keep their order', async () => {
  await pool.query("INSERT INTO counters VALUES ('a'), ('b')");
  const seen: string[] = [];
  const operation = groupOperation<{ name: string; n: number }, { version: number }>({
    pool,
    name: 'counters.increase',
    lanes: 2,
    exclusive: ({ name }) => name,
    effects: async (tx, commands) => {
      const names = commands.map(({ name }) => name);
      assert.equal(new Set(names).size, names.length, 'one for each name');
      seen.push(...commands.map(({ name, n }) => `${name}${n}`));
      const { rows } = await tx.query(
        'UPDATE counters SET version = version + 1 WHERE name = ANY($1) RETURNING name, version',
        [names],
      );
      return commands.map(({ name }) => ({
        code: 200,
        result: { version: rows.find((row) => row['name'] === name)?.['version'] as number },
      }));
    },
  });
  const replies = await Promise.all(
    Array.from({ length: 40 }, async (_, n) => operation.run(alice(`counter-${n}`), { name: n % 2 ? 'a' : 'b', n })),
  );
  for (const name of ['a', 'b']) {
    const order = seen.filter((each) => each.startsWith(name)).map((each) => Number(each.slice(1)));
    assert.deepEqual(
      order,
      order.toSorted((x, y) => x - y),
    );
  }
  const versions = replies.map((reply) => (reply.outcome === 'answered' ? reply.result?.version : 0));
  assert.deepEqual(
    versions,
    Array.from({ length: 40 }, (_, n) => Math.floor(n / 2) + 1),
  );
});

test('a database that cannot be reached fails all that wait, at once, and later ones find it again', async () => {
  const away = new pg.Pool({ connectionString: 'postgres://x@127.0.0.1:1/x' });
  let connects = 0;
  const flaky = {
    connect: async () => {
      connects += 1;
      return connects <= 1 ? away.connect() : pool.connect();
    },
  };
  const operation = groupOperation<Create, Created>({
    pool: flaky,
    name: 'orders.create',
    effects: createOrders,
    lanes: 1,
  });
  const ask = async (from: number) =>
    Promise.allSettled(
      Array.from({ length: 20 }, async (_, n) => operation.run(alice(`away-${from + n}`), { name: 'away', amount: 1 })),
    );
  const failing = await ask(0);
  assert.ok(failing.every(({ status }) => status === 'rejected'));
  assert.equal(connects, 1, 'halves of the batch would not reach it either');
  const working = await ask(20);
  assert.ok(working.every(({ status }) => status === 'fulfilled'));
  assert.equal((await counts('away')).orders, 20);
  await away.end();
});

test('equal keys that wait for one that is held elsewhere are told to come again together, not one after another', async () => {
  const held = Promise.withResolvers<void>();
  const claimed = Promise.withResolvers<void>();
  const holding = groupOperation<Create, Created>({
    pool: pools[1]!,
    name: 'orders.create',
    effects: async (tx, commands) => {
      claimed.resolve();
      await held.promise;
      return createOrders(tx, commands);
    },
  }).run(alice('held'), { name: 'held', amount: 1 });
  await claimed.promise;
  const operation = orders(0, { waitMs: 200 });
  const began = performance.now();
  const replies = await Promise.all(
    Array.from({ length: 10 }, async () => operation.run(alice('held'), { name: 'held', amount: 1 })),
  );
  const tookMs = performance.now() - began;
  held.resolve();
  assert.deepEqual(new Set(replies.map(({ outcome }) => outcome)), new Set(['busy']));
  assert.ok(tookMs < 5 * 200, `ten waits one after another take 2 s, and this took ${tookMs} ms`);
  resultOf(await holding);
  assert.equal((await counts('held')).orders, 1);
});
