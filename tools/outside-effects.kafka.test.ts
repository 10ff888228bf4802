/**
 * The two handlers of docs/outside-effects.md, word for word, each in the README's consumer: though the mail service takes
 * each mail and breaks off, it is sent once.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import { blockOf, openFolder, ours, replaced, root } from './page-programs.ts';

const { url } = await testDatabase();
const kafka = await testKafka();
const orders = await kafka.createTopic('orders', { partitions: 2 });
const mails = await kafka.createTopic('mails');
const client = new pg.Client(url);
await client.connect();
after(async () => client.end());

/** By key: what was sent, and how often it was asked for. */
const sent = new Map<string, unknown>();
const calls = new Map<string, number>();

/** Each key is broken off at first, and each third fails once more. */
async function takeMail(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const key = String(request.headers['idempotency-key']);
  const mail = JSON.parse(await text(request)) as unknown;
  if (!sent.has(key)) sent.set(key, mail);
  const call = (calls.get(key) ?? 0) + 1;
  calls.set(key, call);
  if (call === 1) request.socket.destroy();
  else response.writeHead(call === 2 && [...sent.keys()].indexOf(key) % 3 === 0 ? 503 : 202).end();
}

const mailService = createServer((request, response) => {
  takeMail(request, response).catch((error: unknown) => response.writeHead(400).end(String(error)));
});
await new Promise<void>((listening) => {
  mailService.listen(0, '127.0.0.1', listening);
});
after(() => mailService.close().closeAllConnections());
const mailUrl = `http://127.0.0.1:${(mailService.address() as AddressInfo).port}/`;
const { start, write } = openFolder({ DATABASE_URL: url, KAFKA_BROKERS: kafka.bootstrap, MAIL_URL: mailUrl });

/** The README's consumer with a handler of the page. */
function startWith(file: string, consumer: string, topic: string) {
  write(file, blockOf('docs/outside-effects.md', file).replaceAll(`'mails'`, `'${mails}'`));
  let program = replaced(
    blockOf('README.md', 'consumer.mjs'),
    /^ {2}handler: \{[^]*?^ {2}\},\n/m,
    '  handler,\n  batch: 5,\n',
  );
  program = replaced(program, `name: 'shipping'`, `name: '${consumer}'`);
  program = replaced(program, `topics: ['orders']`, `topics: ['${topic}']`);
  return start(`${consumer}.mjs`, `import { handler } from './${file}';\n${program}`);
}

test('each mail is sent once, though every call is broken off at first', async () => {
  const cli = join(root, 'packages/twiceproof/src/cli/main.ts');
  execFileSync(process.execPath, [...ours, cli, 'migrate'], { env: { ...process.env, DATABASE_URL: url } });
  await client.query('CREATE TABLE parcels (order_id text NOT NULL, item text NOT NULL)');
  const programs = [
    start('relay.mjs', blockOf('README.md', 'relay.mjs')),
    startWith('asking.mjs', 'shipping', orders),
    startWith('calling.mjs', 'mailer', mails),
  ];
  await client.query(
    `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload)
     SELECT 0, $1, 'o-' || n, uuidv7(), 'order.created',
       convert_to(json_build_object('item', 'a book', 'email', n || '@example.org')::text, 'utf8')
     FROM generate_series(1, 12) AS n`,
    [orders],
  );
  const counts = `SELECT (SELECT count(*)::int FROM twiceproof.inbox WHERE consumer = 'mailer') AS done,
    (SELECT count(*)::int FROM twiceproof.held) AS held, (SELECT count(*)::int FROM parcels) AS parcels`;
  const deadline = performance.now() + 90_000;
  let found: Record<string, unknown> | undefined;
  while ((found = (await client.query<Record<string, unknown>>(counts)).rows[0])?.['done'] !== 12) {
    assert.ok(performance.now() < deadline, JSON.stringify([found, ...calls, ...programs.map(({ said }) => said())]));
    await delay(50);
  }
  assert.deepEqual(found, { done: 12, held: 0, parcels: 12 });
  for (const program of programs) assert.equal(await program.stop(), 0, program.said());
  const expected = Array.from({ length: 12 }, (_, n) => ({
    to: `${n + 1}@example.org`,
    subject: 'a book is on its way',
  }));
  const shown = (list: readonly unknown[]): string[] => list.map((mail) => JSON.stringify(mail)).toSorted();
  assert.deepEqual(shown([...sent.values()]), shown(expected));
  assert.ok([...calls.values()].every((count) => count >= 2));
});
