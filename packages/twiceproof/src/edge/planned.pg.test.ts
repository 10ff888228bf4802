import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import type { Pool, PoolClient } from '../connection.ts';
import { createKeyStore } from '../idempotency/statements.ts';
import { migrate } from '../migrations/migrate.ts';
import { createOutbox } from '../outbox/append.ts';
import { uuidv7 } from '../uuid.ts';
import { plannedOperation, type OperationReply } from './operation.ts';
import type { PlannedEdgeOptions } from './planned.ts';

const { url } = await testDatabase();
/** Two pools stand for two processes: nothing in memory is shared but the database. */
const pools = [0, 1].map(() => new pg.Pool({ connectionString: url, max: 4 }));
const [pool] = pools as [pg.Pool, pg.Pool];
after(async () => Promise.all(pools.map(async (each) => each.end())));
await migrate(pool);
await pool.query(
  'CREATE TABLE orders (order_id uuid PRIMARY KEY, name text NOT NULL, amount int NOT NULL CHECK (amount <> 13))',
);
const outbox = createOutbox({ topics: ['order.events'] });

interface Create {
  name: string;
  amount: number;
}
interface Row extends Create {
  order_id: string;
}

const unplannable = new Set<string>();

function orders(n = 0, options: Partial<PlannedEdgeOptions<Create, Row>> = {}) {
  return plannedOperation<Create, { order_id: string }, Row>({
    pool: pools[n]!,
    name: 'orders.create',
    columns: { order_id: 'uuid', name: 'text', amount: 'int' },
    statement: 'INSERT INTO orders SELECT order_id, name, amount FROM won RETURNING 1',
    outbox,
    ...options,
    plan: (command) => {
      if (command.amount === 15 || unplannable.has(command.name)) throw new Error('no plan for this one');
      const order_id = uuidv7();
      const payload = Buffer.alloc(command.amount === 14 ? 2_000_000 : 1);
      const message = { topic: 'order.events', aggregateId: order_id, type: 'order.created', payload };
      return { outcome: { code: 201, result: { order_id } }, row: { order_id, ...command }, messages: [message] };
    },
  });
}

function idOf(reply: OperationReply<{ order_id: string }> | undefined): string {
  assert.ok(reply?.outcome === 'answered' && reply.result, reply?.outcome);
  return reply.result.order_id;
}

async function counts(name: string): Promise<{ orders: number; messages: number; keys: number }> {
  const { rows } = await pool.query<{ orders: number; messages: number; keys: number }>(
    `SELECT (SELECT count(*)::int FROM orders WHERE name = $1) AS orders,
       (SELECT count(*)::int FROM twiceproof.outbox JOIN orders ON aggregate_id = order_id::text WHERE name = $1) AS messages,
       (SELECT count(*)::int FROM twiceproof.idempotency_keys WHERE idem_key LIKE $1 || '-%') AS keys`,
    [name],
  );
  return rows[0]!;
}

const alice = (key: string) => ({ principal: 'alice', key });

test('many keys, each asked for several times at once in two processes: one order, one message, one answer for each key', async () => {
  const operations = [orders(0), orders(1)];
  const asked = Array.from({ length: 1_200 }, (_, n) => ({
    key: `many-${n % 300}`,
    operation: operations[n % 7 < 3 ? 0 : 1]!,
  }));
  const ids = await Promise.all(
    asked.map(async ({ key, operation }) => idOf(await operation.run(alice(key), { name: 'many', amount: 1 }))),
  );
  const byKey = Map.groupBy(ids, (_, n) => asked[n]!.key);
  for (const [key, same] of byKey) assert.equal(new Set(same).size, 1, key);
  assert.equal(new Set(ids).size, 300);
  assert.deepEqual(await counts('many'), { orders: 300, messages: 300, keys: 300 });
  const { rowCount } = await pool.query('SELECT 1 FROM twiceproof.answers');
  assert.equal(rowCount, 0, 'the answers are stored with the claims');
});

test('one bad intent does not hurt its neighbours, whether the database, the outbox or its own plan refuses it', async () => {
  const operation = orders();
  const bad: Record<number, number> = { 30: 13, 50: 14, 60: 15 };
  const replies = await Promise.allSettled(
    Array.from({ length: 64 }, async (_, n) => operation.run(alice(`bad-${n}`), { name: 'bad', amount: bad[n] ?? 1 })),
  );
  const failed = replies.flatMap((reply, n) => (reply.status === 'rejected' ? [[n, String(reply.reason)]] : []));
  assert.match(failed.join('\n'), /^30,.*violates check constraint.*\n50,.*TP_MESSAGE_TOO_LARGE.*\n60,.*no plan.*$/);
  assert.deepEqual(await counts('bad'), { orders: 61, messages: 61, keys: 61 });
  idOf(await operation.run(alice('bad-30'), { name: 'bad', amount: 1 }));
});

test('a key that is forgotten between its claim and the look at who has it is claimed anew', async () => {
  const first = idOf(await orders(0).run(alice('forgotten-1'), { name: 'forgotten', amount: 1 }));
  let looks = 0;
  const sweeping: Pool = {
    connect: async () => {
      const client = await pool.connect();
      const query = client.query.bind(client) as PoolClient['query'];
      const between: PoolClient['query'] = async (text, values) => {
        // The claims have a name; what is sent as a text is the look.
        const isLook = typeof text === 'string' && text.includes('idempotency_keys');
        if (isLook && (looks += 1) === 1)
          await pool.query(`DELETE FROM twiceproof.idempotency_keys WHERE idem_key = 'forgotten-1'`);
        return query(text, values);
      };
      return { query: between, release: (destroy) => client.release(destroy) };
    },
  };
  const second = idOf(await orders(1, { pool: sweeping }).run(alice('forgotten-1'), { name: 'forgotten', amount: 1 }));
  assert.equal(looks, 1);
  assert.notEqual(second, first);
  assert.deepEqual(await counts('forgotten'), { orders: 2, messages: 2, keys: 1 });
});

test('what was carried out is replayed when nobody could plan it any more', async () => {
  const first = idOf(await orders(0).run(alice('planned-1'), { name: 'planned', amount: 1 }));
  unplannable.add('planned');
  assert.equal(idOf(await orders(1).run(alice('planned-1'), { name: 'planned', amount: 1 })), first);
  await assert.rejects(orders(1).run(alice('planned-2'), { name: 'planned', amount: 1 }), /no plan/);
  assert.equal((await counts('planned')).orders, 1);
});

test('another request under the same key is a mismatch, and its plan comes to nothing', async () => {
  const first = idOf(await orders(0).run(alice('mismatch-1'), { name: 'mismatch', amount: 1 }));
  assert.equal((await orders(1).run(alice('mismatch-1'), { name: 'mismatch', amount: 2 })).outcome, 'mismatch');
  assert.equal(idOf(await orders(1).run(alice('mismatch-1'), { name: 'mismatch', amount: 1 })), first);
  assert.notEqual(
    idOf(await orders(1).run({ principal: 'bob', key: 'mismatch-1' }, { name: 'mismatch', amount: 2 })),
    first,
  );
  assert.deepEqual(await counts('mismatch'), { orders: 2, messages: 2, keys: 2 });
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

for (const [what, statement] of Object.entries({
  'writes fewer rows than it promised':
    'INSERT INTO orders SELECT order_id, name, amount FROM won WHERE amount <> 7 RETURNING 1',
  'does not read won': "INSERT INTO orders VALUES (gen_random_uuid(), 'plan', 7) RETURNING 1",
})) {
  test(`a statement that ${what} is taken back whole, and said to be wrong`, async () => {
    const operation = orders(0, { statement });
    if (what === 'does not read won') await orders().run(alice('plan-known'), { name: 'plan-known', amount: 7 });
    const key = what === 'does not read won' ? 'plan-known' : 'plan-new';
    await assert.rejects(operation.run(alice(key), { name: 'plan', amount: 7 }), { code: 'TP_PLAN_NOT_KEPT' });
    assert.equal((await counts('plan')).orders, 0);
    const { rowCount } = await pool.query("SELECT 1 FROM twiceproof.idempotency_keys WHERE idem_key = 'plan-new'");
    assert.equal(rowCount, 0);
  });
}

test('messages without an outbox are refused, by name', async () => {
  const operation = orders(0, { outbox: undefined as never });
  await assert.rejects(operation.run(alice('no-outbox'), { name: 'none', amount: 1 }), { code: 'TP_OPTION' });
});

/** A pool whose first connections carry a statement out, or do not, and then break. */
function poolThatLoses(times: number, isCarriedOut: boolean, thenAway = false): Pool & { sent: number } {
  const lossy = {
    sent: 0,
    async connect(): Promise<PoolClient> {
      if (thenAway && lossy.sent >= times) throw new Error('connect ECONNREFUSED');
      const client = await pool.connect();
      return {
        query: async (text: string, values?: unknown[]) => {
          if (!text.startsWith('WITH bounds')) return client.query<Record<string, unknown>>(text, values);
          lossy.sent += 1;
          if (lossy.sent > times) return client.query<Record<string, unknown>>(text, values);
          if (isCarriedOut) await client.query(text, values);
          throw new Error('Connection terminated unexpectedly');
        },
        on: (event, listener) => client.on(event, listener),
        off: (event, listener) => client.off(event, listener),
        release: (destroy?: boolean) => client.release(destroy),
      };
    },
  };
  return lossy;
}

for (const isCarriedOut of [true, false]) {
  test(`the connection is lost, and the statement was ${isCarriedOut ? '' : 'not '}carried out: it is sent again, and done once`, async () => {
    const name = `lost${isCarriedOut ? 1 : 2}`;
    const lossy = poolThatLoses(2, isCarriedOut);
    const operation = orders(0, { pool: lossy, named: false });
    const ids = await Promise.all(
      Array.from({ length: 20 }, async (_, n) =>
        idOf(await operation.run(alice(`${name}-${n % 10}`), { name, amount: 1 })),
      ),
    );
    assert.equal(new Set(ids).size, 10);
    assert.ok(lossy.sent >= 3);
    assert.deepEqual(await counts(name), { orders: 10, messages: 10, keys: 10 });
    assert.equal(idOf(await orders(1).run(alice(`${name}-0`), { name, amount: 1 })), ids[0]);
  });
}

test('nobody can tell what became of it: said so; never said before anything was sent', async () => {
  const operation = orders(0, { pool: poolThatLoses(1, true, true), named: false, outcomeWithinMs: 200 });
  await assert.rejects(operation.run(alice('unknown-1'), { name: 'unknown', amount: 1 }), {
    code: 'TP_COMMIT_UNKNOWN',
  });
  assert.equal((await counts('unknown')).orders, 1);
  const away = orders(0, { pool: poolThatLoses(0, true, true) });
  await assert.rejects(away.run(alice('unknown-2'), { name: 'unknown', amount: 1 }), /ECONNREFUSED/);
});

test('a key that is held for too long elsewhere is answered as busy, and its neighbours are not', async () => {
  const holder = await pool.connect();
  await holder.query('BEGIN');
  await createKeyStore().claim(holder, [
    { ...alice('held-1'), operation: 'orders.create', requestHash: '00', hashVersion: 1 },
  ]);
  const operation = orders(1, { waitMs: 100 });
  const replies = await Promise.all(
    [0, 1, 2].map(async (n) => operation.run(alice(`held-${n}`), { name: 'held', amount: 1 })),
  );
  assert.deepEqual(
    replies.map(({ outcome }) => outcome),
    ['answered', 'busy', 'answered'],
  );
  await holder.query('ROLLBACK');
  holder.release();
  idOf(await operation.run(alice('held-1'), { name: 'held', amount: 1 }));
  assert.equal((await counts('held')).orders, 3);
});

test('a server that says nothing is given up in time, and the outcome is said to be unknown', async () => {
  const holder = await pool.connect();
  await holder.query('BEGIN');
  await holder.query('LOCK TABLE orders IN ACCESS EXCLUSIVE MODE');
  const operation = orders(1, { waitMs: 50, outcomeWithinMs: 100 });
  const silent = operation.run(alice('silent-1'), { name: 'silent', amount: 1 });
  await assert.rejects(silent, { code: 'TP_COMMIT_UNKNOWN' }).finally(() => holder.release(true));
  idOf(await operation.run(alice('silent-1'), { name: 'silent', amount: 1 }));
  assert.equal((await counts('silent')).orders, 1);
});

test('a plan that was made for an empty table does not stay when the table has grown', async (t) => {
  // Statistics of any table of the statement would have it planned anew.
  for (const table of ['idempotency_keys', 'answers', 'outbox_default']) {
    await pool.query(`ALTER TABLE twiceproof.${table} SET (autovacuum_enabled = off)`);
  }
  await pool.query('CREATE TABLE stock (item int PRIMARY KEY, taken int NOT NULL) WITH (autovacuum_enabled = off)');
  await pool.query('INSERT INTO stock VALUES (1, 0)');
  await pool.query('ANALYZE stock');
  let hours = 0;
  const one = new pg.Pool({ connectionString: url, max: 1 });
  t.after(async () => one.end());
  const operation = plannedOperation<{ item: number }, null, { item: number }>({
    pool: one,
    name: 'stock.take',
    now: () => hours * 3_600_000,
    columns: { item: 'int' },
    statement: 'UPDATE stock SET taken = taken + 1 FROM won WHERE stock.item = won.item RETURNING 1',
    plan: (row) => ({ outcome: { code: 200, result: null }, row }),
  });
  let asked = 0;
  const take = async (times: number): Promise<void> => {
    for (let n = 0; n < times; n += 1) await operation.run(alice(`stock-${(asked += 1)}`), { item: 1 });
  };
  const scans = async (): Promise<number> => {
    await one.query('SELECT pg_stat_force_next_flush()');
    const { rows } = await one.query<{ n: number }>(
      `SELECT seq_scan::int AS n FROM pg_stat_user_tables WHERE relname = 'stock'`,
    );
    return rows[0]!.n;
  };
  await take(10);
  await pool.query('INSERT INTO stock SELECT n, 0 FROM generate_series(2, 50_000) AS n');
  const empty = await scans();
  await take(10);
  const grown = await scans();
  assert.ok(grown - empty >= 10, 'the trap is real: it reads the whole table, as it did when that had one row');
  hours = 1;
  await take(1); // The last one with the old plan; then its connection is closed.
  const closed = await scans();
  await take(10);
  assert.equal((await scans()) - closed, 0);
});

test('it is right, and on disk, whatever this user has for defaults', async () => {
  await pool.query(
    `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database());
       EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$`,
  );
  const strict = [0, 1].map(() => new pg.Pool({ connectionString: url, max: 2 }));
  const statement = `INSERT INTO orders SELECT order_id, current_setting('synchronous_commit'), amount FROM won RETURNING 1`;
  const operations = strict.map((each) => orders(0, { pool: each, statement, lanes: 2 }));
  await Promise.all(
    Array.from({ length: 400 }, async (_, n) =>
      operations[n % 2]!.run(alice(`strict-${n % 100}`), { name: 'ignored', amount: 1 }),
    ),
  );
  await Promise.all(strict.map(async (each) => each.end()));
  assert.deepEqual([(await counts('on')).orders, (await counts('off')).orders], [100, 0]);
});

test('a name of the statement that a pooler has not carried along is done without, and nothing is done twice', async () => {
  const single = new pg.Pool({ connectionString: url, max: 1 });
  try {
    const operation = orders(0, { pool: single });
    const first = idOf(await operation.run(alice('named-1'), { name: 'named', amount: 1 }));
    const { rows } = await single.query<{ name: string }>('SELECT name FROM pg_prepared_statements');
    assert.equal(rows.length, 1);
    await single.query('DEALLOCATE ALL');
    const second = idOf(await operation.run(alice('named-2'), { name: 'named', amount: 1 }));
    assert.notEqual(first, second);
    const { rows: written } = await pool.query("SELECT FROM orders WHERE name = 'named'");
    assert.equal(written.length, 2);
    assert.equal((await single.query('SELECT FROM pg_prepared_statements')).rows.length, 0);
  } finally {
    await single.end();
  }
});
