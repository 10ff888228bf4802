/** Two tenants that ask for different things under the same keys, and what each of them gets to see. */
import assert from 'node:assert/strict';
import type pg from 'pg';
import { openConnection, type HttpAnswer } from './fuzz/client.ts';
import { startOrders } from './program-under-test.ts';

interface Tenant {
  name: string;
  account: number;
  amount: number;
  /** Orders that it was told of, in whatever byte of an answer. */
  seen: Set<string>;
}

interface Request {
  tenant: Tenant;
  bytes: string;
}

type Ask = (requests: readonly Request[]) => Promise<HttpAnswer[]>;

const connections = 8;
const keysAtOnce = 50;
const anyOrderId = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

/** Asks for `keys` orders of each, in a program of this shape, and judges every byte that comes back. */
export async function watchTenants(databaseUrl: string, pool: pg.Pool, shape: string, keys: number): Promise<void> {
  const program = await startOrders(databaseUrl, [`--shape=${shape}`]);
  const alpha = { name: `canary-alpha-${shape}`, account: 1_111_111_111, amount: 1_010_101, seen: new Set<string>() };
  const beta = { name: `canary-beta-${shape}`, account: 2_222_222_222, amount: 2_020_202, seen: new Set<string>() };
  const client = openClient(program.http, [alpha, beta]);
  try {
    for (let from = 0; from < keys; from += keysAtOnce) {
      const some = Array.from({ length: keysAtOnce }, (_, n) => `shared-${from + n}`);
      const orders = await askForOrders(client.ask, [alpha, beta], some);
      await askForOthers(client.ask, [alpha, beta], orders, `foreign-${from}`);
    }
    assert.equal(
      client.refusals.size,
      2,
      `a refusal tells nothing of what it refuses: ${[...client.refusals].join('\n')}`,
    );
    for (const { name, account, amount, seen } of [alpha, beta]) {
      const { rows } = await pool.query<{ order_id: string; status: string }>(
        'SELECT order_id::text, status FROM orders WHERE tenant = $1 AND account_id = $2 AND amount_cents = $3',
        [name, account, amount],
      );
      assert.equal(rows.length, keys);
      assert.deepEqual(
        new Set(rows.map(({ order_id }) => order_id)),
        seen,
        `${name} was told of its own orders, and of no other`,
      );
      assert.ok(
        rows.every(({ status }) => status === 'created'),
        'nobody else has changed them',
      );
    }
    assert.doesNotMatch(await (await fetch(`${program.admin}/metrics`)).text(), /canary/);
  } finally {
    client.close();
    await program.stop();
  }
  assert.doesNotMatch(program.stderr(), /canary/);
}

/** Each asks twice at once, then once more, then for something else, all under the same keys. Answers their orders. */
async function askForOrders(
  ask: Ask,
  both: readonly Tenant[],
  keys: readonly string[],
): Promise<Map<Tenant, string[]>> {
  const each = keys.flatMap((key) => both.map((tenant) => ({ tenant, key })));
  const creates = each.map(({ tenant, key }) => create(tenant, key, tenant.amount));
  const twice = await ask(
    creates.flatMap((one, n) => (n % 2 === 0 ? [one, creates[n + 1]!, one, creates[n + 1]!] : [])),
  );
  const [firsts, copies] = [0, 2].map((at) => twice.filter((_, n) => n % 4 === at || n % 4 === at + 1)) as [
    HttpAnswer[],
    HttpAnswer[],
  ];
  const replays = await ask(creates);
  const others = await ask(each.map(({ tenant, key }) => create(tenant, key, tenant.amount + 1)));
  for (const [n, first] of firsts.entries()) {
    assert.equal(first.status, 201, first.raw);
    assert.equal(undated(copies[n]!), undated(first), 'at once');
    assert.equal(undated(replays[n]!), undated(first), 'later');
    assert.equal(others[n]!.status, 409, others[n]!.raw);
  }
  const idOf = ({ body }: HttpAnswer): string => (JSON.parse(body) as { order_id: string }).order_id;
  return new Map(both.map((tenant, t) => [tenant, firsts.filter((_, n) => n % both.length === t).map(idOf)]));
}

/** Each reads an order of its own, and tries to read and to change one of the other's, and one that is nobody's. */
async function askForOthers(
  ask: Ask,
  both: readonly Tenant[],
  orders: ReadonlyMap<Tenant, readonly string[]>,
  key: string,
): Promise<void> {
  const nobodys = '00000000-0000-4000-8000-000000000000';
  for (const [n, tenant] of both.entries()) {
    const [own] = orders.get(tenant)!;
    const [foreign] = orders.get(both[1 - n]!)!;
    const requests = [
      read(tenant, own!),
      ...[foreign!, nobodys].flatMap((id) => [read(tenant, id), change(tenant, id, `${key}-${id}`)]),
    ];
    const [mine, ...others] = await ask(requests);
    assert.equal(mine!.status, 200);
    assert.match(mine!.body, new RegExp(`"account_id":${tenant.account},"amount_cents":${tenant.amount},`));
    assert.deepEqual(
      others.map(({ status }) => status),
      [404, 404, 404, 404],
    );
  }
}

function openClient(origin: string, both: readonly Tenant[]) {
  const open = Array.from({ length: connections }, () => openConnection(origin));
  /** Every different answer that is a refusal. */
  const refusals = new Set<string>();
  const look = ({ tenant }: Request, answer: HttpAnswer): void => {
    for (const { name, account, amount } of both.filter((other) => other !== tenant)) {
      for (const canary of [name, account, amount]) assert.ok(!answer.raw.includes(String(canary)), answer.raw);
    }
    for (const [orderId] of answer.raw.matchAll(anyOrderId)) tenant.seen.add(orderId);
    if (answer.status >= 400) refusals.add(undated(answer));
  };
  /** All at once. Two that stand side by side go over the same connection, so the tenants share connections and batches. */
  const ask: Ask = async (requests) => {
    const answers = Array<HttpAnswer>(requests.length);
    const work = open.map(async (connection, n) => {
      const mine = [...requests.keys()].filter((index) => (index >> 1) % connections === n);
      connection.send(mine.map((index) => requests[index]!.bytes).join(''));
      for (const index of mine) {
        const answer = await connection.read();
        assert.ok(answer, 'a connection was closed');
        look(requests[index]!, answer);
        answers[index] = answer;
      }
    });
    await Promise.all(work);
    return answers;
  };
  return { ask, refusals, close: () => open.forEach((connection) => connection.destroy()) };
}

function undated({ raw }: HttpAnswer): string {
  return raw.replace(/^date: .*\r\n/im, '');
}

function create(tenant: Tenant, key: string, amount: number): Request {
  return request(tenant, 'POST /orders', key, { account_id: tenant.account, amount_cents: amount });
}

function change(tenant: Tenant, orderId: string, key: string): Request {
  return request(tenant, `POST /orders/${orderId}/status`, key, { status: 'cancelled' });
}

function read(tenant: Tenant, orderId: string): Request {
  return {
    tenant,
    bytes: `GET /orders/${orderId} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${tenant.name}\r\n\r\n`,
  };
}

function request(tenant: Tenant, line: string, key: string, body: object): Request {
  const text = JSON.stringify(body);
  const lines = [`authorization: Bearer ${tenant.name}`, `idempotency-key: ${key}`, 'content-type: application/json'];
  const head = [`${line} HTTP/1.1`, 'host: x', ...lines, `content-length: ${text.length}`].join('\r\n');
  return { tenant, bytes: `${head}\r\n\r\n${text}` };
}
