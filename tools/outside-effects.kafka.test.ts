/** The two handlers of docs/outside-effects.md, word for word: a service that takes a mail and breaks off sends it once. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { text } from 'node:stream/consumers';
import pg from 'pg';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import { createConsumer, type Handler } from 'twiceproof/consumer';
import { createInboxKeeper } from 'twiceproof/consumer/inbox-keeper';
import { migrate } from 'twiceproof/migrations';
import { createOutbox } from 'twiceproof/outbox';
import { createRelay } from 'twiceproof/relay';
import { createPollSource } from 'twiceproof/sources/poll';
import { transaction } from 'twiceproof/transaction';
import { kafkaTransport } from 'twiceproof/transports/kafka';

const root = join(import.meta.dirname, '..');
const { url } = await testDatabase();
const kafka = await testKafka();
const [orders, mails] = [await kafka.createTopic('orders', { partitions: 2 }), await kafka.createTopic('mails')];
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());

// Inside the repository, so that `twiceproof` is found.
mkdirSync(join(root, '.twiceproof'), { recursive: true });
const folder = mkdtempSync(join(root, '.twiceproof/outside-'));
after(() => rmSync(folder, { recursive: true }));

async function handlerOf(name: string): Promise<Handler> {
  const page = readFileSync(join(root, 'docs/outside-effects.md'), 'utf8');
  const block = new RegExp(`^\`\`\`js\n(// ${name}\n[^]*?)^\`\`\`$`, 'm').exec(page)?.[1];
  assert.ok(block, `docs/outside-effects.md has no block ${name}`);
  writeFileSync(join(folder, name), block.replaceAll(`'mails'`, `'${mails}'`));
  return ((await import(join(folder, name))) as { handler: Handler }).handler;
}

/** By key: what was sent. Each key is broken off at first, and each third fails once more. */
async function startMailService() {
  const sent = new Map<string, unknown>();
  const calls = new Map<string, number>();
  const server = createServer((request, response) => {
    void (async () => {
      const [key, body] = [String(request.headers['idempotency-key']), await text(request)];
      if (!sent.has(key)) sent.set(key, JSON.parse(body));
      const call = (calls.get(key) ?? 0) + 1;
      calls.set(key, call);
      if (call === 1) request.socket.destroy();
      else response.writeHead(call === 2 && [...sent.keys()].indexOf(key) % 3 === 0 ? 503 : 202).end();
    })();
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  after(() => server.close().closeAllConnections());
  process.env['MAIL_URL'] = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  return { sent, calls };
}

test('each mail is sent once, though every call is broken off at first', async () => {
  const { sent, calls } = await startMailService();
  await migrate(pool);
  await pool.query('CREATE TABLE parcels (order_id text NOT NULL, item text NOT NULL)');
  const stop = new AbortController();
  const transport = kafkaTransport({ bootstrap: kafka.bootstrap });
  const keeper = createInboxKeeper({ pool, ttlMs: 17 * 24 * 3_600_000 });
  await keeper.runOnce();
  const shipping = createConsumer({
    pool,
    transport,
    name: 'shipping',
    group: kafka.group('shipping'),
    topics: [orders],
    handler: await handlerOf('asking.mjs'),
  });
  const mailer = createConsumer({
    pool,
    transport,
    name: 'mailer',
    group: kafka.group('mailer'),
    topics: [mails],
    handler: await handlerOf('calling.mjs'),
    batch: 5,
  });
  const relay = createRelay({ source: createPollSource({ pool }), transport, name: '/shop' });
  const running = Promise.all([shipping, mailer, relay].map(async (each) => each.run(stop.signal)));

  const ids = Array.from({ length: 12 }, () => randomUUID());
  const message = (id: string) => ({
    topic: orders,
    aggregateId: id,
    type: 'order.created',
    payload: Buffer.from(JSON.stringify({ item: 'a book', email: `${id}@example.org` })),
  });
  await transaction(pool, (tx) => createOutbox({ topics: [orders] }).append(tx, ids.map(message)));
  const counts = async () =>
    (
      await pool.query<{ done: number; held: number }>(
        `SELECT (SELECT count(*)::int FROM twiceproof.inbox WHERE consumer = 'mailer') AS done,
                (SELECT count(*)::int FROM twiceproof.held) AS held`,
      )
    ).rows[0]!;
  const deadline = performance.now() + 90_000;
  while ((await counts()).done < ids.length) {
    assert.ok(performance.now() < deadline, JSON.stringify([await counts(), ...calls]));
    await delay(50);
  }
  stop.abort();
  await running;
  await relay.close();
  await transport.close();

  assert.equal((await counts()).held, 0);
  const expected = ids.map((id) => ({ to: `${id}@example.org`, subject: 'a book is on its way' }));
  const byTo = (a: { to: string }, b: { to: string }): number => (a.to < b.to ? -1 : 1);
  assert.deepEqual([...sent.values()].toSorted(byTo as never), expected.toSorted(byTo));
  assert.ok([...calls.values()].every((count) => count >= 2));
});
