import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import {
  bodyOf,
  exchange,
  grpcClient,
  requestText,
  startOrders,
  statusOf,
  type GrpcOrders,
} from './program-under-test.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 2 });
const programs = await Promise.all([startOrders(url), startOrders(url)]);
const handlers = await startOrders(url, ['--shape=handler']);
const clients = await Promise.all(programs.map(async ({ grpc }) => grpcClient(grpc)));
after(async () => {
  for (const client of clients) client.close();
  await Promise.all([...programs, handlers].map(async (each) => each.stop()));
  await pool.end();
});
const [first] = programs;
const [grpc] = clients as [GrpcOrders];

const order = { account_id: 7, amount_cents: 1_250 };
const asTenant = (key: string, tenant = 'tenant-1') => ({ authorization: `Bearer ${tenant}`, 'idempotency-key': key });

async function create(key: string, origin = first.http, body: unknown = order, tenant = 'tenant-1'): Promise<string> {
  return exchange(origin, requestText('/orders', { key, body, tenant }));
}

async function countFor(orderId: unknown): Promise<{ orders: number; messages: number }> {
  const { rows } = await pool.query<{ orders: number; messages: number }>(
    `SELECT (SELECT count(*)::int FROM orders WHERE order_id = $1::uuid) AS orders,
            (SELECT count(*)::int FROM twiceproof.outbox WHERE aggregate_id = $1::text) AS messages`,
    [orderId],
  );
  return rows[0]!;
}

test('64 first requests at once with one key, over HTTP and gRPC, to two processes: one order, one answer at each door', async () => {
  for (let round = 0; round < 5; round += 1) {
    const key = `race-${round}`;
    const [http, calls] = await Promise.all([
      Promise.all(Array.from({ length: 32 }, async (_, n) => create(key, programs[n % 2]!.http))),
      Promise.all(Array.from({ length: 32 }, async (_, n) => clients[n % 2]!.call('Create', order, asTenant(key)))),
    ]);
    assert.equal(new Set(http).size, 1, 'every byte but Date');
    assert.equal(statusOf(http[0]!), 201);
    for (const call of calls) assert.deepEqual(call, calls[0]);
    assert.equal(calls[0]!.code, 0);
    assert.deepEqual(calls[0]!.response, bodyOf(http[0]!), 'the same order through both doors');
    assert.deepEqual(await countFor(bodyOf(http[0]!)['order_id']), { orders: 1, messages: 1 });
    const { rowCount } = await pool.query('SELECT 1 FROM twiceproof.idempotency_keys WHERE idem_key = $1', [key]);
    assert.equal(rowCount, 1);
  }
  const { rows } = await pool.query('SELECT count(*)::int AS count FROM orders');
  assert.deepEqual(rows, [{ count: 5 }]);
});

test('the answer is what the interface says', async () => {
  const raw = await create('interface');
  const { order_id } = bodyOf(raw);
  assert.match(raw, /^HTTP\/1\.1 201 Created\r\n/);
  assert.match(raw, /\r\ncontent-type: application\/json; charset=utf-8\r\n/);
  assert.ok(raw.includes(`\r\nlocation: /orders/${String(order_id)}\r\n`));
  assert.ok(raw.endsWith(`\r\n\r\n{"order_id":"${String(order_id)}","status":"created"}`));
  const { rows } = await pool.query(
    `SELECT topic, event_type, convert_from(payload, 'utf8') AS payload FROM twiceproof.outbox WHERE aggregate_id = $1`,
    [order_id],
  );
  const payload = JSON.stringify({ order_id, ...order, status: 'created', version: 1 });
  assert.deepEqual(rows, [{ topic: 'order.events', event_type: 'order.created', payload }]);
});

test('either shape replays what the other has stored', async () => {
  const raw = await create('shapes', handlers.http);
  assert.equal(statusOf(raw), 201);
  assert.equal(await create('shapes'), raw);
  assert.equal(await create('"shapes"', handlers.http), raw, 'in quotes it is the same key');
});

test('what is refused is a problem, and leaves nothing behind', async () => {
  const before = await pool.query('SELECT count(*) FROM twiceproof.idempotency_keys');
  await create('taken');
  const cases: [string, Parameters<typeof requestText>[1], number, string][] = [
    ['another body', { key: 'taken', body: { ...order, amount_cents: 1 } }, 409, 'key-reused'],
    ['no key', { body: order }, 400, 'key-missing'],
    ['an empty key', { key: '', body: order }, 400, 'key-malformed'],
    ['a long key', { key: 'x'.repeat(256), body: order }, 400, 'key-malformed'],
    ['two keys', { key: 'a', headers: ['Idempotency-Key: a'], body: order }, 400, 'key-malformed'],
    ['no tenant', { key: 'a', tenant: '', body: order }, 401, 'unauthenticated'],
    ['an unknown field', { key: 'a', body: { ...order, more: 1 } }, 422, 'request-invalid'],
    ['a text for a number', { key: 'a', body: { ...order, account_id: '7' } }, 422, 'request-invalid'],
    ['a fraction', { key: 'a', body: { ...order, amount_cents: 1.5 } }, 422, 'request-invalid'],
    ['nothing', { key: 'a', body: { ...order, amount_cents: 0 } }, 422, 'request-invalid'],
    ['too much', { key: 'a', body: { ...order, account_id: 2 ** 53 } }, 422, 'request-invalid'],
    ['no JSON', { key: 'a', body: '{' }, 400, 'body-malformed'],
    ['a large body', { key: 'a', body: ' '.repeat(20_000) }, 413, 'body-too-large'],
    ['no body', { key: 'a' }, 415, 'media-type-unsupported'],
  ];
  for (const [name, parts, status, type] of cases) {
    const raw = await exchange(first.http, requestText('/orders', parts));
    assert.equal(statusOf(raw), status, `${name}: ${raw}`);
    assert.match(raw, /content-type: application\/problem\+json/, name);
    assert.equal(bodyOf(raw)['type'], `urn:twiceproof:problem:${type}`, name);
  }
  const afterwards = await pool.query('SELECT count(*) - 1 AS count FROM twiceproof.idempotency_keys');
  assert.deepEqual(afterwards.rows, before.rows, 'only the key that was taken');
});

test('gRPC refuses in the same way', async () => {
  await create('grpc-taken');
  const refused = async (request: object, metadata: Record<string, string | string[]>) => {
    const { code, trailers } = await grpc.call('Create', request, metadata);
    return [code, trailers['twiceproof-problem']];
  };
  assert.deepEqual(await refused({ ...order, amount_cents: 1 }, asTenant('grpc-taken')), [9, 'key-reused']);
  assert.deepEqual(await refused(order, { authorization: 'Bearer tenant-1' }), [3, 'key-missing']);
  assert.deepEqual(await refused(order, { ...asTenant('x'), 'idempotency-key': ['a', 'b'] }), [3, 'key-malformed']);
  assert.deepEqual(await refused(order, asTenant('x'.repeat(256))), [3, 'key-malformed']);
  assert.deepEqual(await refused({ ...order, account_id: '9007199254740993' }, asTenant('x')), [3, 'request-invalid']);
  assert.deepEqual(await refused({}, asTenant('x')), [3, 'request-invalid'], 'a message of no bytes');
  assert.deepEqual(await refused(order, { 'idempotency-key': 'x' }), [16, 'unauthenticated']);
});

test('changes of status have versions in order, whatever door and process they come through', async () => {
  const { order_id } = bodyOf(await create('versions'));
  const path = `/orders/${String(order_id)}/status`;
  const changed = await Promise.all(
    Array.from({ length: 30 }, async (_, n) => {
      const status = ['paid', 'shipped', 'delivered'][n % 3]!;
      const key = `version-${n}`;
      if (n % 3 === 0) return (await clients[n % 2]!.call('SetStatus', { order_id, status }, asTenant(key))).response;
      const origin = [...programs, handlers][n % 3]!.http;
      return bodyOf(await exchange(origin, requestText(path, { key, body: { status } })));
    }),
  );
  const versions = changed.map((each) => Number(each?.['version']));
  assert.deepEqual(
    versions.toSorted((a, b) => a - b),
    Array.from({ length: 30 }, (_, n) => n + 2),
  );
  const { rows } = await pool.query<{ version: number; event_type: string }>(
    `SELECT event_type, (convert_from(payload, 'utf8')::json ->> 'version')::int AS version
       FROM twiceproof.outbox WHERE aggregate_id = $1 ORDER BY id`,
    [order_id],
  );
  assert.deepEqual(
    rows.map(({ version }) => version),
    Array.from({ length: 31 }, (_, n) => n + 1),
  );
  assert.deepEqual(new Set(rows.slice(1).map(({ event_type }) => event_type)), new Set(['order.status_changed']));
  const raw = await exchange(first.http, requestText(`/orders/${String(order_id)}`, { method: 'GET' }));
  assert.equal(bodyOf(raw)['version'], 31);
});

test('an order that is not there is a stored refusal, the same at each repetition, and for another tenant', async () => {
  const unknown = '00000000-0000-7000-8000-000000000000';
  const request = requestText(`/orders/${unknown}/status`, { key: 'unknown', body: { status: 'paid' } });
  const raw = await exchange(first.http, request);
  assert.equal(statusOf(raw), 404);
  for (const { http } of [...programs, handlers]) assert.equal(await exchange(http, request), raw);
  const call = async () => grpc.call('SetStatus', { order_id: unknown, status: 'paid' }, asTenant('unknown'));
  const refused = await call();
  assert.deepEqual([refused.code, refused.trailers['twiceproof-problem']], [5, 'order-unknown']);
  assert.deepEqual(await call(), refused);
  const { order_id } = bodyOf(await create('foreign'));
  const path = `/orders/${String(order_id)}`;
  const foreign = { tenant: 'tenant-2', key: 'foreign' };
  const set = await exchange(first.http, requestText(`${path}/status`, { ...foreign, body: { status: 'paid' } }));
  const read = await exchange(first.http, requestText(path, { ...foreign, method: 'GET' }));
  assert.deepEqual([statusOf(set), statusOf(read)], [404, 404]);
});

test('the trace of the first request travels with the message, through either door and in either shape, and is no part of the request', async () => {
  const trace = (n: number): string => `00-4bf92f3577b34da6a3ce929d0e0e473${n}-00f067aa0ba902b7-01`;
  const post = async (
    origin: string,
    path: string,
    key: string,
    body: object,
    traceparent: string,
  ): Promise<string> => {
    const headers = { ...asTenant(key), 'content-type': 'application/json', traceparent };
    const answer = await fetch(`${origin}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    assert.ok(answer.ok, String(answer.status));
    return ((await answer.json()) as { order_id: string }).order_id;
  };
  const tracesOf = async (orderId: string): Promise<unknown[]> => {
    const { rows } = await pool.query('SELECT headers FROM twiceproof.outbox WHERE aggregate_id = $1 ORDER BY id', [
      orderId,
    ]);
    return rows.map(({ headers }) => headers as unknown);
  };
  for (const { http } of [first, handlers]) {
    const key = `traced-${new URL(http).port}`;
    const id = await post(http, '/orders', key, order, trace(1));
    assert.equal(await post(http, '/orders', key, order, trace(2)), id, 'a retry has another trace');
    await post(http, `/orders/${id}/status`, `${key}-status`, { status: 'paid' }, trace(3));
    await post(http, `/orders/${id}/status`, `un${key}-status`, { status: 'shipped' }, 'not a trace');
    assert.deepEqual(await tracesOf(id), [{ traceparent: trace(1) }, { traceparent: trace(3) }, null]);
  }
  const { response } = await grpc.call('Create', order, { ...asTenant('traced-grpc'), traceparent: trace(4) });
  const { order_id } = response as { order_id: string };
  assert.deepEqual(await tracesOf(order_id), [{ traceparent: trace(4) }]);
});
