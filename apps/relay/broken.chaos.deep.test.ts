import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { startKafka } from '@twiceproof/infra/kafka';
import { startPostgres } from '@twiceproof/infra/postgres';
import { kafkaAdmin } from '@twiceproof/infra/testing';
import { migrate } from 'twiceproof/migrations';
import { createOutbox } from 'twiceproof/outbox';
import { countPending } from 'twiceproof/outbox/pending';
import { transaction } from 'twiceproof/transaction';
import { kafkaTransport } from 'twiceproof/transports/kafka';
import { readTopic, runRelay, startRelay, until } from './program-under-test.ts';

const [postgres, cluster] = await Promise.all([
  startPostgres({ settings: { max_prepared_transactions: '5' } }),
  startKafka({ brokers: 1 }),
]);
const admin = kafkaAdmin(cluster.bootstrap);
const pool = new pg.Pool({ connectionString: postgres.url, max: 2 });
pool.on('error', () => {});
after(async () => {
  await pool.end();
  await admin.close();
  await Promise.all([postgres.close(), cluster.close()]);
});
await migrate(pool);
const servers = { databaseUrl: postgres.url, brokers: cluster.bootstrap };

async function append(topic: string, ...texts: string[]): Promise<void> {
  const outbox = createOutbox({ topics: [topic] });
  const messages = texts.map((text) => ({ topic, aggregateId: 'a', type: 'said', payload: Buffer.from(text) }));
  await transaction(pool, (tx) => outbox.append(tx, messages));
}

async function read(topic: string): Promise<string[]> {
  const transport = kafkaTransport({ bootstrap: cluster.bootstrap });
  try {
    return (await readTopic(transport, 'reader', topic)).map(({ text }) => text);
  } finally {
    await transport.close();
  }
}

test('one replica is too few in production, and warned of elsewhere', async (context) => {
  await admin.createTopic('single', { partitions: 1 });
  const { code, stderr } = await runRelay(servers, ['--topics=single'], { NODE_ENV: 'production' });
  assert.equal(code, 3, stderr);
  assert.match(stderr, /single: it has 1 replicas, not 3/);
  const relay = await startRelay(context, servers, ['--topics=single']);
  assert.match(relay.stderr(), /WARNING.*1 replicas/);
  assert.equal(await relay.stop(), 0);
});

test('what others do to the database is measured: open, prepared and old transactions', async (context) => {
  await admin.createTopic('measured', { partitions: 1 });
  const relay = await startRelay(context, servers, ['--topics=measured']);
  const client = await pool.connect();
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  await client.query('SELECT pg_current_xact_id()');
  for (let n = 0; n < 20; n += 1) await pool.query('SELECT pg_current_xact_id()');
  const metric = async (name: string) => relay.metric(`relay_database_${name}`);
  await until('it is open for a second', async () => (await metric('oldest_transaction_seconds')) > 1);
  assert.ok((await metric('xmin_age')) >= 20);
  assert.ok((await metric('frozen_age')) > 0);
  assert.equal(await metric('prepared_transactions'), 0);
  await client.query(`PREPARE TRANSACTION 'forgotten'`);
  await until('it is seen', async () => (await metric('prepared_transactions')) === 1);
  await until('it grows old', async () => (await metric('prepared_oldest_seconds')) > 1);
  assert.ok((await metric('xmin_age')) >= 20);
  await client.query(`ROLLBACK PREPARED 'forgotten'`);
  client.release();
  await until('it is gone', async () => (await metric('prepared_transactions')) === 0);
  await relay.stop();
});

test('while the database is away it is alive and not ready, and goes on by itself', async (context) => {
  await admin.createTopic('away', { partitions: 1 });
  const relay = await startRelay(context, servers, ['--topics=away']);
  await append('away', 'before');
  await until('it publishes', async () => (await relay.metric('relay_published_total')) === 1);
  assert.ok((await relay.readyz()).startsWith('200'));
  await postgres.kill();
  await until('it is not ready', async () => (await relay.readyz()).startsWith('503'));
  assert.equal((await fetch(`${relay.admin}/livez`)).status, 200);
  const page = async () => (await fetch(`${relay.admin}/metrics`)).text();
  await until('the gauges say nothing', async () => !/^relay_pending_messages \d/m.test(await page()));
  await postgres.start();
  await append('away', 'after');
  await until('it goes on', async () => (await countPending(pool, 10)) === 0);
  await until('it is ready', async () => (await relay.readyz()).startsWith('200'));
  assert.match(relay.stderr(), /"level":"error","code"/);
  assert.equal(await relay.stop(), 0);
  // An advance that the crash of the server has taken back makes a duplicate.
  assert.deepEqual([...new Set(await read('away'))], ['before', 'after']);
});

test('brokers that do not answer cannot hold it: it ends within its grace time, and the next one goes on', async (context) => {
  await admin.createTopic('frozen', { partitions: 1 });
  const relay = await startRelay(context, servers, ['--topics=frozen', '--grace-ms=1000', '--stalled-ms=1000']);
  await append('frozen', 'before');
  await until('it publishes', async () => (await relay.metric('relay_published_total')) === 1);
  cluster.brokers[0]!.freeze();
  context.after(() => cluster.brokers[0]!.thaw());
  await append('frozen', 'meanwhile');
  await until('nothing moves', async () => /^503 .*although messages wait/.test(await relay.readyz()));
  relay.signal('SIGTERM');
  await until('it says that it stops', async () => /^503 .*it is stopping/.test(await relay.readyz()));
  assert.equal(await relay.exited, 0);
  assert.match(relay.stderr(), /not finished in time/);
  cluster.brokers[0]!.thaw();
  const next = await startRelay(context, servers, ['--topics=frozen']);
  await until('it goes on', async () => (await countPending(pool, 10)) === 0);
  await next.stop();
  assert.deepEqual([...new Set(await read('frozen'))], ['before', 'meanwhile']);
});

test('a quota that makes the broker silent for longer than a publish may take: nothing lost, nothing out of order', async (context) => {
  await admin.createTopic('throttled', { partitions: 1 });
  context.after(async () => admin.limitProducers(undefined));
  await admin.limitProducers(20_000);
  const args = ['--publish-deadline-ms=2000', '--idle-timeout-ms=3000', '--watchdog-ms=4000', '--batch=50'];
  const relay = await startRelay(context, servers, ['--topics=throttled', ...args]);
  const count = 400;
  await append('throttled', ...Array.from({ length: count }, (_, n) => `${n} ${'x'.repeat(5_000)}`));
  await until('all is published', async () => (await countPending(pool, 1)) === 0, 300_000);
  assert.ok(
    (await relay.metric('relay_trouble_total{code="TP_DEADLINE"}')) > 0,
    'the broker was never silent for long',
  );
  assert.equal(await relay.stop(), 0);
  const numbers = (await read('throttled')).map((text) => Number.parseInt(text, 10));
  assert.deepEqual(
    [...new Set(numbers)],
    Array.from({ length: count }, (_, n) => n),
  );
});
