/** The README's relay and consumer, word for word, as processes of their own: what is appended has one effect. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import { blockOf, openFolder, ours, replaced, root } from './page-programs.ts';

const { url } = await testDatabase();
const kafka = await testKafka();
const topic = await kafka.createTopic('orders', { partitions: 2 });
const client = new pg.Client(url);
await client.connect();
after(async () => client.end());
const { start } = openFolder({ DATABASE_URL: url, KAFKA_BROKERS: kafka.bootstrap });

test('what is appended twice as a record, and once as a message, has one effect; both programs stop when they are told', async () => {
  const cli = join(root, 'packages/twiceproof/src/cli/main.ts');
  execFileSync(process.execPath, [...ours, cli, 'migrate'], { env: { ...process.env, DATABASE_URL: url } });
  await client.query('CREATE TABLE parcels (order_id text NOT NULL, item text NOT NULL)');
  const relay = start('relay.mjs', blockOf('README.md', 'relay.mjs'));
  const reading = replaced(blockOf('README.md', 'consumer.mjs'), `topics: ['orders']`, `topics: ['${topic}']`);
  const consumer = start('consumer.mjs', reading);
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
