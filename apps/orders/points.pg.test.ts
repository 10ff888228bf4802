import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { testDatabase } from '@twiceproof/infra/testing';
import pg from 'pg';
import { exchange, requestText, startOrders, statusOf } from './program-under-test.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 1 });
const directory = mkdtempSync(join(tmpdir(), 'orders-'));
after(async () => {
  await pool.end();
  rmSync(directory, { recursive: true });
});

/** Records the points that a program passes, and kills it at one, if that is given. */
async function supervise(name: string, killAt?: string) {
  const passed: string[] = [];
  const path = join(directory, name);
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.setEncoding('utf8').on('data', (text: string) => {
      for (const line of text.trim().split('\n')) {
        const { id, name: at, pid } = JSON.parse(line) as { id: number; name: string; pid: number };
        passed.push(at);
        if (at === killAt) process.kill(pid, 'SIGKILL');
        else socket.write(`${id}\n`);
      }
    });
  });
  await once(server.listen(path), 'listening');
  return { path, passed, close: () => server.close() };
}

const points = [
  'transaction:before-begin',
  'edge:before-claim',
  'edge:claimed',
  'outbox:appended',
  'edge:handled',
  'edge:answer-stored',
  'transaction:commit-about-to-be-sent',
  'transaction:commit-sent',
  'http:committed',
  'http:half-written',
];
const request = (key: string) => requestText('/orders', { key, body: { account_id: 1, amount_cents: 1 } });

for (const shape of ['group', 'handler']) {
  test(`${shape}: a request passes each point, and its answer is the same with them and without`, async () => {
    const { path, passed, close } = await supervise(shape);
    const program = await startOrders(url, [`--shape=${shape}`], { TWICEPROOF_POINTS: path });
    passed.length = 0; // The migrations have passed some.
    const raw = await exchange(program.http, request(shape));
    assert.deepEqual(passed, points);
    await program.stop();
    close();
    const unarmed = await startOrders(url);
    assert.equal(await exchange(unarmed.http, request(shape)), raw);
    await unarmed.stop();
  });
}

for (const killAt of ['http:committed', 'http:half-written']) {
  test(`killed at ${killAt}: the client has no whole answer, and gets it from the next process`, async () => {
    const { path, close } = await supervise(killAt, killAt);
    const program = await startOrders(url, [], { TWICEPROOF_POINTS: path });
    const part = await exchange(program.http, request(killAt)).catch(() => '');
    assert.equal(await program.exited, null);
    close();
    const next = await startOrders(url);
    const raw = await exchange(next.http, request(killAt));
    assert.equal(statusOf(raw), 201);
    await next.stop();
    // How much of it arrives is up to the network: a reset may even take back what was sent. Never the whole.
    if (killAt === 'http:half-written')
      assert.ok(part.length < raw.length && 'HTTP/1.1 201'.startsWith(part.slice(0, 12)), part);
    else assert.equal(part, '');
    const { rowCount } = await pool.query(`SELECT 1 FROM twiceproof.idempotency_keys WHERE idem_key = $1`, [killAt]);
    assert.equal(rowCount, 1);
  });
}
test('each of these was one order', async () => {
  const { rows } = await pool.query('SELECT count(*)::int AS count FROM orders');
  assert.deepEqual(rows, [{ count: 4 }]);
});
