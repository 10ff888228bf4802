import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import type { Message } from 'twiceproof/message';
import { migrate } from 'twiceproof/migrations';
import { createOutbox } from 'twiceproof/outbox';
import { transaction } from 'twiceproof/transaction';
import { kafkaTransport } from 'twiceproof/transports/kafka';
import { readTopic, startRelay, textsByKey, until, type Received } from './program-under-test.ts';

const { url } = await testDatabase();
const kafka = await testKafka();
const servers = { databaseUrl: url, brokers: kafka.bootstrap };
const pool = new pg.Pool({ connectionString: url, max: 3 });
after(async () => pool.end());
await migrate(pool);

async function append(...messages: Message[]): Promise<string[]> {
  const topics = messages.map(({ topic }) => topic);
  const outbox = createOutbox({ topics, limits: { messageBytes: 10_000_000 } });
  return transaction(pool, (tx) => outbox.append(tx, messages));
}

const said = (topic: string, aggregateId: string, text: string): Message => ({
  topic,
  aggregateId,
  type: 'said',
  payload: Buffer.from(text),
});

async function read(topic: string): Promise<Received[]> {
  const transport = kafkaTransport({ bootstrap: kafka.bootstrap });
  try {
    return await readTopic(transport, kafka.group('reader'), topic);
  } finally {
    await transport.close();
  }
}

test('a committed row arrives with its id, key, bytes and headers; one that was rolled back does not', async (context) => {
  const topic = await kafka.createTopic('arrives', { partitions: 3 });
  const relay = await startRelay(context, servers, [`--topics=${topic}`, '--name=/shop']);
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  const payload = Buffer.from([0, 255, 0x7b, 0x0a, 0xc3, 0x28]);
  const before = Date.now();
  const [id] = await append({
    topic,
    aggregateId: 'order-ü',
    type: 'order.created',
    payload,
    headers: { traceparent, tracestate: 'a=1,b=2' },
  });
  await assert.rejects(
    transaction(pool, async (tx) => {
      await createOutbox({ topics: [topic] }).append(tx, [said(topic, 'ghost', 'boo')]);
      throw new Error('changed my mind');
    }),
    /changed my mind/,
  );
  await append(said(topic, 'order-ü', 'the end'));
  await until('both are published', async () => (await relay.metric('relay_published_total')) === 2);
  assert.equal(await relay.stop(), 0, relay.stderr());

  const [first, second, ...more] = await read(topic);
  assert.deepEqual([second?.text, more.length], ['the end', 0]);
  const { key, value, headers } = first!.delivery;
  assert.equal(Buffer.from(key!).toString(), 'order-ü');
  assert.deepEqual(Buffer.from(value), payload);
  const { ce_time, ...rest } = Object.fromEntries(
    headers.map(([name, bytes]) => [name, Buffer.from(bytes).toString()]),
  );
  assert.deepEqual(rest, {
    traceparent,
    tracestate: 'a=1,b=2',
    ce_specversion: '1.0',
    ce_id: id,
    ce_type: 'order.created',
    ce_source: '/shop',
    ce_subject: 'order-ü',
  });
  assert.ok(Math.abs(Date.parse(ce_time!) - before) < 60_000, ce_time);
});

test('each key keeps its order, over many transactions and batches', async (context) => {
  const topic = await kafka.createTopic('order', { partitions: 3 });
  const relay = await startRelay(context, servers, [`--topics=${topic}`, '--batch=7']);
  const expected: Record<string, string[]> = {};
  for (let n = 0; n < 300; n += 3) {
    const messages = [n, n + 1, n + 2].map((each) => said(topic, `key-${each % 5}`, String(each)));
    for (const { aggregateId, payload } of messages) (expected[aggregateId] ??= []).push(String(payload));
    await append(...messages);
  }
  await until('all are published', async () => (await relay.metric('relay_published_total')) === 300);
  assert.equal(await relay.metric('relay_republished_total'), 0);
  assert.ok((await relay.metric('relay_batch_messages_count')) >= 300 / 7);
  await relay.stop();
  assert.deepEqual(textsByKey(await read(topic)), expected);
});

test('an unknown topic makes the shard wait, seen by everyone, and nothing is published twice meanwhile', async (context) => {
  const known = await kafka.createTopic('known');
  const unknown = kafka.group('unknown-topic');
  const relay = await startRelay(context, servers, [`--topics=${known}`, '--stalled-ms=1000']);
  await append(said(known, 'a', 'a1'), said(unknown, 'u', 'u1'), said(known, 'a', 'a2'), said(known, 'b', 'b1'));
  const refused = async () => relay.metric('relay_trouble_total{code="TP_TOPIC_UNKNOWN"}');
  await until('it has tried several times', async () => (await refused()) >= 4);
  assert.equal(await relay.metric('relay_published_total'), 3);
  await append(said(known, 'b', 'b2'));
  await until('it is not ready', async () => /^503 .*although messages wait/.test(await relay.readyz()));
  assert.ok((await relay.metric('relay_stalled_seconds')) >= 1);
  assert.equal((await fetch(`${relay.admin}/livez`)).status, 200);
  assert.match(relay.stderr(), /"level":"error","code":"TP_TOPIC_UNKNOWN"/);
  assert.equal(await relay.metric('relay_parked_total'), 0);

  await kafka.admin.createTopic(unknown, { partitions: 1 });
  await until('it goes on', async () => (await relay.metric('relay_published_total')) === 5);
  await until('nothing is pending', async () => (await relay.metric('relay_pending_messages')) === 0);
  await until('it is ready', async () => (await relay.readyz()).startsWith('200'));
  await relay.stop();
  assert.deepEqual(textsByKey(await read(known)), { a: ['a1', 'a2'], b: ['b1', 'b2'] });
  assert.deepEqual(textsByKey(await read(unknown)), { u: ['u1'] });
});

test('a record that is too large parks its key, and the others go on', async (context) => {
  const topic = await kafka.createTopic('large');
  const relay = await startRelay(context, servers, [`--topics=${topic}`]);
  await append(
    said(topic, 'a', 'a1'),
    said(topic, 'big', 'x'.repeat(2_000_000)),
    said(topic, 'big', 'big2'),
    said(topic, 'a', 'a2'),
  );
  await until('it is parked', async () => (await relay.metric('relay_parked_messages')) === 2);
  await append(said(topic, 'big', 'big3'), said(topic, 'a', 'a3'));
  await until('the next one is behind it', async () => (await relay.metric('relay_parked_messages')) === 3);
  await until('the other key goes on', async () => (await relay.metric('relay_published_total')) === 3);
  assert.equal(await relay.metric('relay_parked_keys'), 1);
  assert.equal(await relay.metric('relay_parked_total'), 2);
  assert.ok((await relay.readyz()).startsWith('200'));
  await relay.stop();
  assert.deepEqual(textsByKey(await read(topic)), { a: ['a1', 'a2', 'a3'] });
  const { rows } = await pool.query<{ text: string }>(
    `DELETE FROM twiceproof.relay_parked RETURNING left(convert_from(payload, 'utf8'), 4) AS text`,
  );
  assert.deepEqual(
    rows.map(({ text }) => text),
    ['xxxx', 'big2', 'big3'],
  );
});

test('the largest message that the outbox takes by default goes through the smallest topic that passes the check', async (context) => {
  const topic = await kafka.createTopic('limit', { config: { 'max.message.bytes': '1002048' } });
  const relay = await startRelay(context, servers, [`--topics=${topic}`]);
  const name = (n: number): string => String(n).padStart(255, 'n');
  const headers = Object.fromEntries(Array.from({ length: 32 }, (_, n) => [name(n), 'v'.repeat(100)]));
  const rest = 2 * 255 + 32 * (255 + 100);
  const message = { topic, aggregateId: name(1), type: name(2), payload: Buffer.alloc(1_000_000 - rest), headers };
  const outbox = createOutbox({ topics: [topic] });
  await transaction(pool, (tx) => outbox.append(tx, [message]));
  const tooMuch = { ...message, payload: Buffer.alloc(1_000_001 - rest) };
  await assert.rejects(
    transaction(pool, (tx) => outbox.append(tx, [tooMuch])),
    { code: 'TP_MESSAGE_TOO_LARGE' },
  );
  await until('it is published', async () => (await relay.metric('relay_published_total')) === 1);
  assert.equal(await relay.metric('relay_parked_total'), 0);
  await relay.stop();
});

test('the rights of tp_relay are all that it needs', async (context) => {
  const topic = await kafka.createTopic('rights');
  const cli = join(import.meta.dirname, '../../packages/twiceproof/src/cli/main.ts');
  const roles = execFileSync(process.execPath, [cli, 'sql', '--roles'], { encoding: 'utf8' });
  // Roles belong to the whole server: another test may be making them just now.
  await pool.query(roles).catch(async () => pool.query(roles));
  const asRelay = new URL(url);
  asRelay.searchParams.set('options', '-c role=tp_relay');
  const relay = await startRelay(context, { ...servers, databaseUrl: asRelay.href }, [`--topics=${topic}`]);
  await append(said(topic, 'a', 'a1'), said(topic, 'big', 'x'.repeat(2_000_000)), said(topic, 'a', 'a2'));
  await until('it is parked', async () => (await relay.metric('relay_parked_messages')) === 1);
  assert.equal(await relay.metric('relay_published_total'), 2);
  const page = await (await fetch(`${relay.admin}/metrics`)).text();
  for (const [, gauge] of page.matchAll(/^# TYPE (\S+) gauge$/gm)) assert.match(page, new RegExp(`^${gauge} \\d`, 'm'));
  assert.equal(await relay.stop(), 0);
  assert.doesNotMatch(relay.stderr(), /permission denied/);
  await pool.query('DELETE FROM twiceproof.relay_parked');
});
