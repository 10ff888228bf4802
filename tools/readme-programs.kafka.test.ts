/** The README's relay and consumer, word for word, as processes of their own: what is appended has one effect. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';

const root = join(import.meta.dirname, '..');
const page = readFileSync(join(root, 'README.md'), 'utf8');
const { url } = await testDatabase();
const kafka = await testKafka();
const topic = await kafka.createTopic('orders', { partitions: 2 });
const client = new pg.Client(url);
await client.connect();
after(async () => client.end());
// Inside the repository, so that `twiceproof` is found.
mkdirSync(join(root, '.twiceproof'), { recursive: true });
const folder = mkdtempSync(join(root, '.twiceproof/readme-'));
after(() => rmSync(folder, { recursive: true }));
const ours = ['--conditions=twiceproof-source'];

/** The block that begins with its name. */
function block(name: string): string {
  const found = new RegExp(`^\`\`\`js\n(// ${name}\n[^]*?)^\`\`\`$`, 'm').exec(page)?.[1];
  assert.ok(found, `README.md has no block ${name}`);
  return found;
}

function start(name: string, change: (text: string) => string = (text) => text) {
  const file = join(folder, name);
  writeFileSync(file, change(block(name)));
  const child = spawn(process.execPath, [...ours, file], {
    env: { ...process.env, DATABASE_URL: url, KAFKA_BROKERS: kafka.bootstrap },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => (said += text));
  }
  const closed = once(child, 'close');
  after(async () => {
    child.kill('SIGKILL');
    await closed;
  });
  return {
    said: () => said,
    stop: async () => {
      child.kill('SIGTERM');
      return (await closed)[0] as number | null;
    },
  };
}

test('what is appended twice as a record, and once as a message, has one effect; both programs stop when they are told', async () => {
  const cli = join(root, 'packages/twiceproof/src/cli/main.ts');
  execFileSync(process.execPath, [...ours, cli, 'migrate'], { env: { ...process.env, DATABASE_URL: url } });
  await client.query('CREATE TABLE parcels (order_id text NOT NULL, item text NOT NULL)');
  const [relay, consumer] = [
    start('relay.mjs'),
    start('consumer.mjs', (text) => {
      assert.equal(text.split(`topics: ['orders']`).length, 2);
      return text.replace(`['orders']`, `['${topic}']`);
    }),
  ];
  const append = `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload)
    SELECT 0, $1, $2, $3, 'order.created', convert_to('{"item":"a book"}', 'utf8')`;
  const { rows } = await client.query<{ id: string }>('SELECT uuidv7() AS id');
  await client.query(append, [topic, 'o-1', rows[0]!.id]);
  // As a relay does that has died at the wrong moment.
  await client.query(append, [topic, 'o-1', rows[0]!.id]);
  await client.query(append.replace('$3', 'uuidv7()'), [topic, 'o-2']);
  const parcels = 'SELECT * FROM parcels ORDER BY order_id';
  const deadline = performance.now() + 60_000;
  while (((await client.query(parcels)).rowCount ?? 0) < 2) {
    assert.ok(performance.now() < deadline, `in vain: ${relay.said()} ${consumer.said()}`);
    await delay(50);
  }
  assert.deepEqual([await consumer.stop(), await relay.stop()], [0, 0], relay.said() + consumer.said());
  assert.deepEqual((await client.query(parcels)).rows, [
    { order_id: 'o-1', item: 'a book' },
    { order_id: 'o-2', item: 'a book' },
  ]);
  assert.deepEqual([relay.said(), consumer.said()], ['', '']);
});
