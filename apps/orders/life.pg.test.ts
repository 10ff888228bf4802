import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { bodyOf, exchange, grpcClient, requestText, startOrders, statusOf } from './program-under-test.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 3 });
after(async () => pool.end());

const order = { account_id: 7, amount_cents: 1_250 };

async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `in vain: ${what}`);
    await delay(10);
  }
}

/** Holds up every transaction that claims a key, until it is let go. */
async function holdClaims(): Promise<() => Promise<void>> {
  const client = await pool.connect();
  await client.query('BEGIN');
  await client.query('LOCK TABLE twiceproof.idempotency_keys IN SHARE MODE');
  return async () => {
    await client.query('ROLLBACK');
    client.release();
  };
}

async function someoneWaits(): Promise<boolean> {
  const { rowCount } = await pool.query(
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
  );
  return rowCount !== 0;
}

for (const shape of ['group', 'handler']) {
  test(`${shape}: SIGTERM takes no more, finishes what is under way, and ends with 0`, async (context) => {
    const program = await startOrders(url, [`--shape=${shape}`]);
    const client = await grpcClient(program.grpc);
    context.after(() => client.close());
    const release = await holdClaims();
    const key = `drain-${shape}`;
    const overHttp = exchange(program.http, requestText('/orders', { key, body: order }));
    const metadata = { authorization: 'Bearer tenant-1', 'idempotency-key': `${key}-grpc` };
    const overGrpc = client.call('Create', order, metadata);
    await until('a transaction waits', someoneWaits);
    assert.equal((await fetch(`${program.admin}/readyz`)).status, 200);
    program.signal('SIGTERM');
    await until('it is not ready any more', async () => (await fetch(`${program.admin}/readyz`)).status === 503);
    const { hostname, port } = new URL(program.http);
    await until('it takes no connections', async () => {
      const socket = connect(Number(port), hostname);
      const refused = await once(socket, 'connect').then(
        () => false,
        () => true,
      );
      socket.destroy();
      return refused;
    });
    await release();
    const raw = await overHttp;
    assert.equal(statusOf(raw), 201);
    assert.equal((await overGrpc).code, 0);
    assert.equal(await program.exited, 0, program.stderr());
    const { rowCount } = await pool.query('SELECT 1 FROM orders WHERE order_id = $1', [bodyOf(raw)['order_id']]);
    assert.equal(rowCount, 1);
  });
}

test('what is not finished within the grace time is cut off, and changed nothing or can be asked for again', async () => {
  const program = await startOrders(url, ['--grace-ms=100']);
  const release = await holdClaims();
  const cut = exchange(program.http, requestText('/orders', { key: 'cut', body: order })).catch(() => '');
  await until('a transaction waits', someoneWaits);
  program.signal('SIGTERM');
  assert.equal(await cut, '');
  await release();
  assert.equal(await program.exited, 0, program.stderr());
  const next = await startOrders(url);
  assert.equal(statusOf(await exchange(next.http, requestText('/orders', { key: 'cut', body: order }))), 201);
  const { rows } = await pool.query(
    `SELECT count(*)::int AS count FROM twiceproof.idempotency_keys WHERE idem_key = 'cut'`,
  );
  assert.deepEqual(rows, [{ count: 1 }]);
  await next.stop();
});

test('metrics, livez and readyz are on their own port, and tell of no tenant, key or order', async () => {
  const program = await startOrders(url);
  const ask = async (parts: Parameters<typeof requestText>[1]) => exchange(program.http, requestText('/orders', parts));
  const created = bodyOf(await ask({ key: 'canary-key', tenant: 'canary-tenant', body: order }));
  await ask({ key: 'canary-key', tenant: 'canary-tenant', body: order });
  await ask({ body: order });
  const text = await (await fetch(`${program.admin}/metrics`)).text();
  const labels = 'door="http",operation="orders.create"';
  for (const line of [
    `orders_requests_total{${labels},outcome="first"} 1`,
    `orders_requests_total{${labels},outcome="replayed"} 1`,
    `orders_requests_total{${labels},outcome="key-missing"} 1`,
    'orders_idempotency_total{operation="orders.create",result="miss"} 1',
    'orders_idempotency_total{operation="orders.create",result="hit"} 1',
    `orders_request_duration_seconds_bucket{${labels},le="+Inf"} 3`,
    `orders_request_duration_seconds_count{${labels}} 3`,
    '# TYPE orders_request_duration_seconds histogram',
  ]) {
    assert.ok(text.split('\n').includes(line), `${line}\n${text}`);
  }
  assert.doesNotMatch(text, /canary/);
  assert.ok(!text.includes(String(created['order_id'])));
  assert.equal((await fetch(`${program.admin}/livez`)).status, 200);
  assert.equal((await fetch(`${program.admin}/readyz`)).status, 200);
  assert.equal((await fetch(`${program.http}/metrics`)).status, 404);
  await program.stop();
  assert.doesNotMatch(program.stderr(), /canary/);
});

test('baselines warn, repeat the work, and are refused in production', async () => {
  for (const [baseline, messages] of [
    ['none', 0],
    ['outbox-only', 1],
  ] as const) {
    const program = await startOrders(url, [`--baseline=${baseline}`]);
    assert.match(program.stderr(), /WARNING/);
    const ask = async () => bodyOf(await exchange(program.http, requestText('/orders', { key: 'same', body: order })));
    const ids = [await ask(), await ask()].map(({ order_id }) => order_id);
    assert.notEqual(ids[0], ids[1]);
    const { rowCount } = await pool.query('SELECT 1 FROM twiceproof.outbox WHERE aggregate_id = $1', [ids[0]]);
    assert.equal(rowCount, messages);
    await program.stop();
    await assert.rejects(
      startOrders(url, [`--baseline=${baseline}`], { NODE_ENV: 'production' }),
      /ended with 2.*measuring/s,
    );
  }
});

test('without its database it says what to do, and does not start', async () => {
  await assert.rejects(startOrders('postgres://x@127.0.0.1:1/x'), /ended with 3.*Check DATABASE_URL/s);
});

test('two tenants with the same keys never see a byte of each other', async () => {
  const program = await startOrders(url);
  const tenants = ['canary-a', 'canary-b'] as const;
  const keys = Array.from({ length: 1_000 }, (_, n) => `shared-${n}`);
  /** What is whose by construction: each tenant has its own accounts. */
  const owners = new Map<string, string>();
  const ask = async (tenant: (typeof tenants)[number], key: string): Promise<string> => {
    const response = await fetch(`${program.http}/orders`, {
      method: 'POST',
      headers: { authorization: `Bearer ${tenant}`, 'idempotency-key': key, 'content-type': 'application/json' },
      body: JSON.stringify({ account_id: tenants.indexOf(tenant) + 1, amount_cents: 1 }),
    });
    assert.equal(response.status, 201);
    const { order_id } = (await response.json()) as { order_id: string };
    const owner = owners.get(order_id) ?? tenant;
    assert.equal(owner, tenant, 'an order of another');
    owners.set(order_id, owner);
    return order_id;
  };
  for (let from = 0; from < keys.length; from += 50) {
    const some = keys.slice(from, from + 50).flatMap((key) => tenants.map((tenant) => [tenant, key] as const));
    const asked = await Promise.all([...some, ...some].map(async ([tenant, key]) => ask(tenant, key)));
    assert.deepEqual(asked.slice(some.length), asked.slice(0, some.length), 'the same at the second time');
  }
  assert.equal(owners.size, 2_000);
  const { rows } = await pool.query(
    `SELECT tenant, account_id::int, count(*)::int FROM orders WHERE tenant LIKE 'canary-_' GROUP BY 1, 2 ORDER BY 1`,
  );
  assert.deepEqual(rows, [
    { tenant: 'canary-a', account_id: 1, count: 1_000 },
    { tenant: 'canary-b', account_id: 2, count: 1_000 },
  ]);
  await program.stop();
});
