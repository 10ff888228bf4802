/** The drill of docs/operations.md, "The broker has lost records": a consumer was away for longer than records are kept. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import pg from 'pg';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import { createOutbox } from 'twiceproof/outbox';
import { createRelay } from 'twiceproof/relay';
import { createPollSource } from 'twiceproof/sources/poll';
import { transaction } from 'twiceproof/transaction';
import { kafkaTransport } from 'twiceproof/transports/kafka';
import { orderRecords, startPayments, until } from './program-under-test.ts';

const { url } = await testDatabase();
const kafka = await testKafka();
const pool = new pg.Pool({ connectionString: url, max: 3 });
after(async () => pool.end());

/** So many orders, through an outbox and a relay, as a service would publish them. */
async function publishOrders(topic: string, count: number): Promise<void> {
  const outbox = createOutbox({ topics: [topic] });
  const messages = orderRecords(topic, count).map(({ key, value, headers }) => ({
    topic,
    aggregateId: key,
    type: headers!['ce_type']!,
    payload: value,
  }));
  await transaction(pool, (tx) => outbox.append(tx, messages));
  const transport = kafkaTransport({ bootstrap: kafka.bootstrap });
  const relay = createRelay({ source: createPollSource({ pool }), transport, name: '/orders' });
  while ((await relay.runOnce()) === 'busy');
  await relay.close();
  await transport.close();
}

async function republish(topic: string): Promise<unknown> {
  const cli = join(import.meta.dirname, '../../packages/twiceproof/src/cli/main.ts');
  const args = ['--since', '2020-01-01T00:00:00Z', '--topic', topic, '--name', '/orders', '--yes', '--json'];
  const env = { ...process.env, DATABASE_URL: url, KAFKA_BROKERS: kafka.bootstrap };
  const { stdout } = await promisify(execFile)(process.execPath, [cli, 'outbox', 'republish', ...args], { env });
  return JSON.parse(stdout);
}

test('what retention has deleted unread is told, and charged once when the outbox publishes it again', async (context) => {
  const topic = await kafka.createTopic('away');
  const args = [`--topics=${topic}`, `--group=${topic}`];
  const servers = { databaseUrl: url, brokers: kafka.bootstrap };
  const charged = async (): Promise<number> => {
    const { rows } = await pool.query<{ count: number }>('SELECT count(DISTINCT order_id)::int AS count FROM charges');
    return rows[0]!.count;
  };

  const before = await startPayments(context, servers, args);
  await publishOrders(topic, 30);
  await until('the first are charged', async () => (await charged()) === 30);
  assert.equal(await before.stop(), 0, before.stderr());

  await publishOrders(topic, 50);
  await kafka.admin.deleteBefore(topic, 70n);
  const back = await startPayments(context, servers, args);
  await until('what is left is charged', async () => (await charged()) === 40);
  assert.ok((await back.metric('payments_trouble_total{code="TP_POSITION_LOST"}')) >= 1, await back.page());

  assert.deepEqual(await republish(topic), { outcome: 'published', messages: 80, rejected: [] });
  await until('all are charged', async () => (await charged()) === 80);
  const duplicates = async () => back.metric('payments_messages_total{verdict="duplicate"}');
  await until('the others are known', async () => (await duplicates()) === 40);
  const { rows } = await pool.query('SELECT count(*)::int AS charges FROM charges');
  assert.deepEqual(rows, [{ charges: 80 }]);
  assert.equal(await back.stop(), 0, back.stderr());
});
