import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { startPostgres } from '@twiceproof/infra/postgres';
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

/** On the way to the database, and silent when it is told so: nothing passes any more, and nothing is closed. */
async function silencer(to: string): Promise<{ url: string; silence(): void; close(): void }> {
  const target = new URL(to);
  const { hostname, port } = target;
  const sockets: Socket[] = [];
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    for (const [from, onward] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.push(from.on('error', () => onward.destroy()).on('close', () => onward.destroy()));
      from.pipe(onward);
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  target.port = String((server.address() as AddressInfo).port);
  return {
    url: target.href,
    silence: () => sockets.forEach((socket) => socket.unpipe().pause()),
    close: () => {
      server.close();
      sockets.forEach((socket) => socket.destroy());
    },
  };
}

test('SIGTERM ends it within the grace time though the database has fallen silent', async (context) => {
  const database = await silencer(url);
  context.after(() => database.close());
  const program = await startOrders(database.url, ['--grace-ms=1000']);
  assert.equal(statusOf(await exchange(program.http, requestText('/orders', { key: 'silent-1', body: order }))), 201);
  database.silence();
  const cut = exchange(program.http, requestText('/orders', { key: 'silent-2', body: order })).catch(() => '');
  program.signal('SIGTERM');
  // Far less than what a statement may take, and far more than the grace time: the machine may be busy.
  const ended = await Promise.race([program.exited, delay(10_000, 'still there', { ref: false })]);
  program.signal('SIGKILL');
  assert.equal(ended, 0, program.stderr());
  assert.equal(await cut, '');
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
  await callWithStrangeMetadata(program.grpc);
  await program.stop();
  assert.doesNotMatch(program.stderr(), /canary/);
});

/** As no gRPC client would send it: not in ASCII. */
async function callWithStrangeMetadata(address: string): Promise<void> {
  const session = http2.connect(`http://${address}`);
  const stream = session.request({
    ':method': 'POST',
    ':path': '/twiceproof.orders.v1.Orders/Create',
    'content-type': 'application/grpc',
    authorization: 'Bearer canary-\xe9',
    'idempotency-key': 'canary-\xe9',
  });
  stream.end(Buffer.alloc(5));
  const [headers] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders];
  assert.equal(headers['twiceproof-problem'], 'unauthenticated');
  session.close();
}

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

test('a port that is taken, or a host that is none, is said, and it ends', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const { port } = taken.address() as AddressInfo;
  try {
    for (const args of [[`--port=${port}`], [`--grpc-port=${port}`], [`--admin-port=${port}`], ['--host=192.0.2.1']]) {
      await assert.rejects(
        startOrders(url, args),
        /ended with 3.*It cannot listen.*Choose another.*--admin-port/s,
        args[0],
      );
    }
  } finally {
    taken.close();
  }
});

test('a database that does not keep its word is refused in production, and warned of elsewhere', async () => {
  const careless = await startPostgres({ settings: { fsync: 'off' } });
  try {
    await assert.rejects(startOrders(careless.url, [], { NODE_ENV: 'production' }), /ended with 3.*fsync is off/s);
    const program = await startOrders(careless.url);
    assert.match(program.stderr(), /WARNING.*fsync is off/);
    await program.stop();
  } finally {
    await careless.close();
  }
});

test('keys that are older than the retention go by themselves', async () => {
  await pool.query(
    `INSERT INTO twiceproof.idempotency_keys (key_hash, principal, operation, idem_key, request_hash, hash_version, created_at)
     SELECT gen_random_uuid(), 'old', 'x', n::text, '', 1, now() - n * interval '1 hour' FROM generate_series(1, 10) AS n`,
  );
  const left = async () =>
    (await pool.query(`SELECT 1 FROM twiceproof.idempotency_keys WHERE principal = 'old'`)).rowCount;
  const program = await startOrders(url, ['--retention-hours=5']);
  for (const deadline = Date.now() + 10_000; (await left()) !== 4 && Date.now() < deadline;) await delay(20);
  await program.stop();
  assert.equal(await left(), 4);
});

test('with more unpublished messages than allowed new requests are told to come again, and known ones answered', async () => {
  const ask = async (http: string, key: string) =>
    statusOf(await exchange(http, requestText('/orders', { key, body: order })));
  const before = await startOrders(url);
  assert.equal(await ask(before.http, 'known'), 201);
  await before.stop();
  const program = await startOrders(url, ['--max-pending=1']);
  for (const deadline = Date.now() + 10_000; Date.now() < deadline;) {
    if ((await ask(program.http, `new-${Date.now()}`)) === 503) break;
    await delay(20);
  }
  assert.match(
    await exchange(program.http, requestText('/orders', { key: 'one-more', body: order })),
    /retry-after: /i,
  );
  assert.equal(await ask(program.http, 'known'), 201);
  await program.stop();
});
