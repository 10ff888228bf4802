import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import type { OutgoingRecord } from 'twiceproof/transport';
import {
  amountOf,
  eventRecord,
  orderRecords,
  publish as publishTo,
  startPayments,
  until,
  type Payments,
} from './program-under-test.ts';

const { url } = await testDatabase();
const kafka = await testKafka();
const servers = { databaseUrl: url, brokers: kafka.bootstrap };
const pool = new pg.Pool({ connectionString: url, max: 3 });
after(async () => pool.end());

const publish = async (records: readonly OutgoingRecord[]): Promise<void> => publishTo(kafka.bootstrap, records);
const argsFor = (topic: string): string[] => [`--topics=${topic}`, `--group=${topic}`];
const ordersOf = (records: readonly OutgoingRecord[]): string[] => [...new Set(records.map(({ key }) => key))];

/** What there is of these orders: how many charges and effects, how many distinct, and how many states of each version. */
async function found(records: readonly OutgoingRecord[]) {
  const { rows } = await pool.query<Record<string, number>>(
    `SELECT (SELECT count(*)::int FROM charges WHERE order_id = ANY ($1)) AS charges,
       (SELECT count(DISTINCT order_id)::int FROM charges WHERE order_id = ANY ($1)) AS charged,
       (SELECT count(*)::int FROM effects WHERE order_id = ANY ($1)) AS effects,
       (SELECT count(DISTINCT msg_id)::int FROM effects WHERE order_id = ANY ($1)) AS messages,
       (SELECT count(*)::int FROM (SELECT version <= lag(version) OVER (PARTITION BY order_id ORDER BY id) AS is_back
          FROM effects WHERE order_id = ANY ($1)) AS e WHERE is_back) AS out_of_order`,
    [ordersOf(records)],
  );
  return rows[0]!;
}

async function untilEffects(records: readonly OutgoingRecord[], count = records.length): Promise<void> {
  await until(`${count} effects`, async () => (await found(records))['messages']! >= count);
}

for (const shape of ['set', 'each']) {
  test(`each order is charged once, by a handler of ${shape}, and the same records again change nothing`, async (context) => {
    const topic = await kafka.createTopic(shape, { partitions: 3 });
    const records = orderRecords(topic, 40, 3);
    await publish(records);
    const payments = await startPayments(context, servers, [...argsFor(topic), `--shape=${shape}`, '--batch=25']);
    await untilEffects(records);
    const once = { charges: 40, charged: 40, effects: 120, messages: 120, out_of_order: 0 };
    assert.deepEqual(await found(records), once);
    const { rows } = await pool.query<{ order_id: string; amount: number; status: string; version: number }>(
      `SELECT order_id, amount_cents::int AS amount, status, version FROM charges JOIN order_states USING (order_id)
       WHERE order_id = ANY ($1) ORDER BY order_id`,
      [ordersOf(records)],
    );
    const expected = ordersOf(records)
      .toSorted()
      .map((order_id) => ({ order_id, amount: amountOf(order_id), status: 'shipped', version: 3 }));
    assert.deepEqual(rows, expected);
    assert.equal(await payments.metric('payments_messages_total{verdict="first"}'), 120);
    assert.equal(await payments.metric('payments_charges_total'), 40);
    assert.equal(await payments.metric('payments_commit_to_effect_seconds_count'), 120);

    await publish(records);
    const duplicates = async () => payments.metric('payments_messages_total{verdict="duplicate"}');
    await until('all came again', async () => (await duplicates()) === 120);
    assert.deepEqual(await found(records), once);
    assert.equal(await payments.stop(), 0, payments.stderr());
  });
}

test('of two versions that come in the wrong order the higher one stays', async (context) => {
  const topic = await kafka.createTopic('versions');
  const orderId = randomUUID();
  const records = [1, 3, 2].map((version) => eventRecord(topic, { orderId, version }));
  const payments = await startPayments(context, servers, [...argsFor(topic), '--batch=1']);
  await publish(records);
  await untilEffects(records);
  const { rows } = await pool.query('SELECT status, version FROM order_states WHERE order_id = $1', [orderId]);
  assert.deepEqual(rows, [{ status: 'shipped', version: 3 }]);
  assert.equal(await payments.stop(), 0);
});

test('what is no event is parked with its reason, its key waits, neighbours go on, other types are ignored', async (context) => {
  const topic = await kafka.createTopic('invalid');
  const [bad, twice, other] = [randomUUID(), randomUUID(), randomUUID()];
  const good = orderRecords(topic, 20);
  const payments = await startPayments(context, servers, argsFor(topic));
  await publish([
    ...good.slice(0, 10),
    eventRecord(topic, { orderId: bad, payload: { order_id: bad, status: 'created', version: 1, amount_cents: -5 } }),
    eventRecord(topic, { orderId: bad, version: 2 }),
    eventRecord(topic, { orderId: twice }),
    // Another message for the same order: the inbox cannot know, the constraint does.
    eventRecord(topic, { orderId: twice }),
    eventRecord(topic, { orderId: other, type: 'order.archived', payload: 'anything' }),
    eventRecord(topic, { payload: 'not JSON' }),
    ...good.slice(10),
  ]);
  await untilEffects(good);
  await until('they are held', async () => (await payments.metric('payments_held_messages')) === 4);
  const { rows } = await pool.query<{ kind: string; reason: string }>(
    'SELECT kind, reason FROM twiceproof.held WHERE topic = $1 ORDER BY seq',
    [topic],
  );
  assert.deepEqual(
    rows.map(({ kind }) => kind),
    ['parked', 'parked', 'parked', 'parked'],
  );
  assert.match(rows[0]!.reason, /InvalidEvent: order\.created: amount_cents is not a whole number above 0/);
  assert.match(rows[1]!.reason, /behind one of its key/);
  assert.match(rows[2]!.reason, /charges_once/);
  assert.match(rows[3]!.reason, /order\.created: the payload is not a JSON object/);
  assert.ok((await payments.metric('payments_ignored_total')) >= 1);
  assert.equal((await found([{ topic, key: twice, value: Buffer.alloc(0) }]))['charges'], 1);
  assert.equal(await payments.metric('payments_held_total{kind="parked"}'), 4);
  assert.equal(await payments.stop(), 0);
  await pool.query('DELETE FROM twiceproof.held WHERE topic = $1', [topic]);
});

test('two at once, with 30 % of the messages delivered again: charges are orders, effects are messages', async (context) => {
  const topic = await kafka.createTopic('again', { partitions: 4 });
  const args = [...argsFor(topic), '--batch=10', '--no-unique-charge', '--dup-rate=0.3', '--seed=7', '--workers=2'];
  const [one, other] = await Promise.all([
    startPayments(context, servers, args),
    startPayments(context, servers, args),
  ]);
  const both = async (line: string): Promise<number> => (await one.metric(line)) + (await other.metric(line));
  const records = orderRecords(topic, 300, 3);
  for (let n = 0; n < records.length; n += 90) await publish(records.slice(n, n + 90));
  await untilEffects(records);
  assert.deepEqual(await found(records), {
    charges: 300,
    charged: 300,
    effects: 900,
    messages: 900,
    out_of_order: 0,
  });
  assert.ok((await both('payments_injected_total')) > 100);
  assert.ok((await both('payments_messages_total{verdict="duplicate"}')) > 100);
  assert.match(one.stderr(), /WARNING: --dup-rate=0.3 --seed=7/);
  assert.match(one.stderr(), /WARNING: --no-unique-charge/);
  for (const payments of [one, other]) assert.equal(await payments.stop(), 0, payments.stderr());
});

for (const order of ['inbox-first', 'charge-first']) {
  test(`--crash-point=effect, ${order}: what was written and not committed is not there, and is done once by the next one`, async (context) => {
    const topic = await kafka.createTopic(order, { partitions: 3 });
    const records = orderRecords(topic, 20, 2);
    await publish(records);
    const args = [...argsFor(topic), '--no-unique-charge', `--effect-order=${order}`];
    const victim = await startPayments(context, servers, [...args, '--crash-point=effect']);
    assert.equal(await victim.exited, null);
    assert.match(victim.stderr(), /WARNING: --crash-point=effect/);
    assert.equal((await found(records))['effects'], 0);
    const next = await startPayments(context, servers, args);
    await untilEffects(records);
    await publish(records);
    await until(
      'all came again',
      async () => (await next.metric('payments_messages_total{verdict="duplicate"}')) >= 40,
    );
    assert.deepEqual(await found(records), { charges: 20, charged: 20, effects: 40, messages: 40, out_of_order: 0 });
    assert.equal(await next.stop(), 0);
  });
}

test('told to stop under load it ends cleanly, and the next one goes on where it was', async (context) => {
  const topic = await kafka.createTopic('stopped', { partitions: 3 });
  const records = orderRecords(topic, 600, 2);
  await publish(records);
  const first = await startPayments(context, servers, [...argsFor(topic), '--batch=5']);
  await untilEffects(records, 50);
  assert.equal(await first.stop(), 0, first.stderr());
  assert.doesNotMatch(first.stderr(), /not finished in time/);
  const done = await found(records);
  assert.ok(done['messages']! < 1_200, 'it was told in the middle');
  const second = await startPayments(context, servers, argsFor(topic));
  await untilEffects(records);
  assert.equal(await second.metric('payments_messages_total{verdict="first"}'), 1_200 - done['messages']!);
  assert.equal(await second.metric('payments_messages_total{verdict="duplicate"}'), 0);
  assert.deepEqual(await found(records), {
    charges: 600,
    charged: 600,
    effects: 1_200,
    messages: 1_200,
    out_of_order: 0,
  });
  assert.equal(await second.stop(), 0);
});

test('while nothing can be written it is alive and not ready, and goes on by itself', async (context) => {
  const topic = await kafka.createTopic('stalled');
  const payments = await startPayments(context, servers, [...argsFor(topic), '--stalled-ms=300']);
  assert.ok((await payments.readyz()).startsWith('200'));
  const client = await pool.connect();
  await client.query('BEGIN; LOCK TABLE charges');
  const records = orderRecords(topic, 3);
  await publish(records);
  await until('it is not ready', async () => /^503 .*under way/.test(await payments.readyz()));
  assert.ok((await payments.metric('payments_stalled_seconds')) >= 0.3);
  assert.equal((await fetch(`${payments.admin}/livez`)).status, 200);
  await client.query('ROLLBACK');
  client.release();
  await untilEffects(records);
  await until('it is ready', async () => (await payments.readyz()).startsWith('200'));
  assert.equal(await payments.stop(), 0);
});

function served(text: string): string[] {
  return [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => `${name} ${type}`);
}

test('docs/metrics.md lists the metrics of payments, and no others', async (context) => {
  const topic = await kafka.createTopic('metrics');
  const payments: Payments = await startPayments(context, servers, argsFor(topic));
  await until('the database is looked at', async () => /^payments_held_messages 0$/m.test(await payments.page()));
  const text = await payments.page();
  assert.equal(await payments.stop(), 0);
  const doc = readFileSync(join(import.meta.dirname, '../../docs/metrics.md'), 'utf8');
  const listed = [...doc.matchAll(/^\| `(payments_\w+)(?:\{\w+\})?` *\| (\w+) *\|/gm)].map(
    ([, name, type]) => `${name} ${type}`,
  );
  assert.ok(listed.length > 10, text);
  assert.deepEqual(listed.toSorted(), served(text).toSorted());
  for (const [, gauge] of text.matchAll(/^# TYPE (\S+) gauge$/gm)) assert.match(text, new RegExp(`^${gauge} \\d`, 'm'));
});
