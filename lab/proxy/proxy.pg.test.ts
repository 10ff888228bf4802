import assert from 'node:assert/strict';
import { after, before, test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { testDatabase } from '@twiceproof/infra/testing';
import pg from 'pg';
import { sends } from './fault.ts';
import { startProxy, type FaultProxy } from './proxy.ts';

const { url } = await testDatabase();
const direct = new pg.Pool({ connectionString: url, max: 1 });
before(async () => direct.query('CREATE TABLE facts (fact text PRIMARY KEY)'));
after(async () => direct.end());

async function setup(
  t: TestContext,
): Promise<{ proxy: FaultProxy; open(options?: pg.ClientConfig): Promise<pg.Client> }> {
  const { hostname: host, port } = new URL(url);
  const proxy = await startProxy({ target: { host, port: Number(port) } });
  t.after(async () => proxy.close());
  const through = new URL(url);
  through.host = proxy.address;
  const open = async (options: pg.ClientConfig = {}): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: through.href, ...options });
    client.on('error', () => {});
    await client.connect();
    t.after(async () => client.end());
    return client;
  };
  return { proxy, open };
}

async function xidOf(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ xid: string }>('SELECT pg_current_xact_id()::text AS xid');
  return rows[0]!.xid;
}

async function statusOf(xid: string): Promise<string> {
  const { rows } = await direct.query<{ status: string }>('SELECT pg_xact_status($1::xid8) AS status', [xid]);
  return rows[0]!.status;
}

async function isThere(fact: string): Promise<boolean> {
  return (await direct.query('SELECT 1 FROM facts WHERE fact = $1', [fact])).rowCount === 1;
}

/** The server works on after its client is gone; what it is still doing is waited for. */
async function eventually(condition: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = Date.now() + 5_000;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `within 5 s: ${what}`);
    await delay(10);
  }
}

test('the answer of COMMIT is lost: the client sees an error, the server has committed', async (t) => {
  const { proxy, open } = await setup(t);
  const [client, bystander] = [await open(), await open()];
  await client.query('BEGIN');
  await client.query("INSERT INTO facts VALUES ('committed, unknown')");
  const xid = await xidOf(client);
  proxy.next({ kind: 'lose-answer', when: sends('COMMIT') });
  await assert.rejects(client.query('COMMIT'), /Connection terminated unexpectedly/);
  await proxy.fired('lose-answer');
  assert.equal(await statusOf(xid), 'committed');
  assert.ok(await isThere('committed, unknown'));
  await bystander.query("BEGIN; INSERT INTO facts VALUES ('bystander')");
  await bystander.query('COMMIT');
  assert.equal(proxy.counts.fired['lose-answer'], 1, 'the next COMMIT has its answer');
});

test('the connection is cut before COMMIT reaches the server: the same error, and nothing is committed', async (t) => {
  const { proxy, open } = await setup(t);
  const client = await open();
  await client.query("BEGIN; INSERT INTO facts VALUES ('never')");
  const xid = await xidOf(client);
  proxy.next({ kind: 'cut', when: sends('COMMIT') });
  await assert.rejects(client.query('COMMIT'), /Connection terminated unexpectedly/);
  assert.equal(proxy.counts.fired.cut, 1);
  await eventually(async () => (await statusOf(xid)) === 'aborted', 'it is rolled back');
  assert.equal(await isThere('never'), false);
});

test('black hole: only a timeout of its own frees the client; the server holds its lock until it is told', async (t) => {
  const { proxy, open } = await setup(t);
  const client = await open({ query_timeout: 100 });
  await client.query("BEGIN; INSERT INTO facts VALUES ('locked')");
  const xid = await xidOf(client);
  proxy.all({ kind: 'black-hole' });
  await assert.rejects(client.query('COMMIT'), /Query read timeout/);
  await proxy.fired('black-hole');
  await client.end().catch(() => {});
  assert.equal(await statusOf(xid), 'in progress', 'the client is gone, and the server does not know');
  await direct.query("SET lock_timeout = '50ms'");
  await assert.rejects(direct.query("INSERT INTO facts VALUES ('locked')"), /lock timeout/);
  await assert.rejects(open({ connectionTimeoutMillis: 100 }), /timeout/, 'a new one is accepted and not served');
  proxy.heal();
  await eventually(async () => (await statusOf(xid)) === 'aborted', 'it is rolled back');
});

test('one way: what the server never hears is not done, what the client never hears is', async (t) => {
  const { proxy, open } = await setup(t);
  const mute = await open({ query_timeout: 100 });
  proxy.next({ kind: 'one-way', lost: 'to-server', when: sends('unheard') });
  await assert.rejects(mute.query("INSERT INTO facts VALUES ('unheard')"), /Query read timeout/);
  await proxy.fired('one-way', { times: 1 });

  const deaf = await open({ query_timeout: 100 });
  proxy.next({ kind: 'one-way', lost: 'to-client', when: sends('unanswered') });
  await assert.rejects(deaf.query("INSERT INTO facts VALUES ('unanswered')"), /Query read timeout/);
  await proxy.fired('one-way', { times: 2 });
  assert.ok(await isThere('unanswered'));
  assert.equal(await isThere('unheard'), false);
  proxy.heal();
});

test('reset in the middle of an answer, and of a request', async (t) => {
  const { proxy, open } = await setup(t);
  const reader = await open();
  proxy.next({ kind: 'reset', direction: 'to-client', afterBytes: 1_000, when: sends('repeat') });
  await assert.rejects(reader.query("SELECT repeat('x', 5000)"), /ECONNRESET/);
  const writer = await open();
  proxy.next({ kind: 'reset', direction: 'to-server', afterBytes: 20, when: sends('half') });
  await assert.rejects(writer.query("INSERT INTO facts VALUES ('half of it')"), /ECONNRESET/);
  assert.equal(proxy.counts.fired.reset, 2);
  assert.equal(await isThere('half of it'), false);
});

test('slow drip: slow, and right', async (t) => {
  const { proxy, open } = await setup(t);
  const client = await open();
  proxy.all({ kind: 'drip', bytes: 64, intervalMs: 1 });
  const { rows } = await client.query<{ text: string }>(
    "SELECT string_agg(n::text, ' ') AS text FROM generate_series(1, 500) n",
  );
  assert.equal(rows[0]?.text, Array.from({ length: 500 }, (_, index) => index + 1).join(' '));
  assert.equal(proxy.counts.fired.drip, 1);
});
