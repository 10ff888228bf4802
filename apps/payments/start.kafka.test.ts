import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { startPostgres } from '@twiceproof/infra/postgres';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import { runPayments, startPayments } from './program-under-test.ts';

const { url } = await testDatabase();
const { url: emptyUrl } = await testDatabase();
const kafka = await testKafka();
const servers = { databaseUrl: url, brokers: kafka.bootstrap };
const topic = await kafka.createTopic('right');
const production = { NODE_ENV: 'production' };
const dayMs = 86_400_000;

/** It ends with this code, and says all of these. */
async function assertRefuses(code: number, said: RegExp[], ...call: Parameters<typeof runPayments>): Promise<void> {
  const result = await runPayments(...call);
  assert.equal(result.code, code, result.stderr);
  for (const words of said) assert.match(result.stderr, words);
}

test('--help names every flag, and all wrong flags are reported at once', async () => {
  const { code, stdout } = await runPayments(servers, ['--help']);
  assert.equal(code, 0);
  for (const flag of [
    'topics',
    'group',
    'dedup-ttl',
    'unsafe-ttl',
    'dup-rate',
    'no-unique-charge',
    'crash-point',
    'effect-order',
    'grace-ms',
  ]) {
    assert.match(stdout, new RegExp(`--${flag}\\b`));
  }
  await assertRefuses(
    2,
    [
      /--batch is a whole number/,
      /--dedup-ttl is a time such as .*, not '9'/,
      /--outbox-wait is a time .*, not '0h'/,
      /--dup-rate is a number from 0 to 1, not '30'/,
      /--topics names no topic/,
      /--hold-late is for --unsafe-ttl/,
    ],
    servers,
    ['--batch=0', '--dedup-ttl=9', '--outbox-wait=0h', '--dup-rate=30', '--topics=,', '--hold-late'],
  );
  await assertRefuses(2, [/--unsafe-ttl needs a --dedup-ttl/], servers, ['--unsafe-ttl']);
  const needs = [/--effect-order=charge-first needs --no-unique-charge/];
  await assertRefuses(2, needs, servers, ['--effect-order=charge-first']);
  for (const flag of ['--workers=2', '--shape=each']) {
    const args = ['--effect-order=charge-first', '--no-unique-charge', flag];
    await assertRefuses(2, [/--workers and --shape=each are not for it/], servers, args);
  }
  const late = ['--effect-order=charge-first', '--no-unique-charge', '--unsafe-ttl', '--dedup-ttl=5s'];
  await assertRefuses(2, [/charge-first cannot run late messages/], servers, late);
});

test('its keeper may have an address of its own', async () => {
  const past = '--keeper-database-url=postgres://x@127.0.0.1:1/x';
  await assertRefuses(3, [/The inbox cannot be prepared: .*ECONNREFUSED/], servers, [`--topics=${topic}`, past]);
});

test('without addresses it says which are missing', async () => {
  await assertRefuses(3, [/DATABASE_URL.*KAFKA_BROKERS/], { databaseUrl: '', brokers: '' });
});

test('a database and brokers that do not answer are both named, without the password', async () => {
  const nobody = { databaseUrl: 'postgres://me:secret@127.0.0.1:1/x', brokers: '127.0.0.1:1' };
  const { code, stderr, stdout } = await runPayments(nobody, ['--json']);
  assert.equal(code, 3, stderr);
  assert.match(stderr, /The database cannot be used: .*ECONNREFUSED.*\n.*Check DATABASE_URL/);
  assert.match(stderr, /TP_BROKER_UNREACHABLE.*\n.*Check KAFKA_BROKERS/);
  assert.doesNotMatch(stderr + stdout, /secret/);
});

test('a database that does not keep its word is refused in production, and warned of elsewhere', async (context) => {
  const careless = await startPostgres({ settings: { fsync: 'off' } });
  try {
    const there = { ...servers, databaseUrl: careless.url };
    const args = [`--topics=${topic}`, `--group=${kafka.group('careless')}`];
    await assertRefuses(3, [/fsync is off/], there, args, production);
    const payments = await startPayments(context, there, args);
    assert.match(payments.stderr(), /WARNING.*fsync is off/);
    assert.equal(await payments.stop(), 0);
  } finally {
    await careless.close();
  }
});

test('topics that are missing or compacted are refused, each with its reason; weak ones in production', async () => {
  const compacted = await kafka.createTopic('compacted', { config: { 'cleanup.policy': 'compact' } });
  const missing = kafka.group('missing');
  await assertRefuses(
    3,
    [
      new RegExp(`${compacted}: cleanup.policy is compact:`),
      new RegExp(`${missing}: it does not exist.*\\n.*Create the topic`),
    ],
    servers,
    [`--topics=${[topic, compacted, missing].join(', ')}`],
  );
  const weak = await kafka.createTopic('weak', { config: { 'min.insync.replicas': '1' } });
  await assertRefuses(3, [/min.insync.replicas is 1, not 2/], servers, [`--topics=${weak}`], production);
});

test('a time to live below the horizon is refused, and one that is computed is above it', async (context) => {
  const config = { 'retention.ms': String(20 * dayMs), 'segment.ms': String(3 * dayMs) };
  const long = await kafka.createTopic('long', { config });
  const args = [`--topics=${long}`, `--group=${long}`];
  // 1 in the outbox + 20 + 3 + what the broker and the clocks take, in minutes.
  await assertRefuses(
    3,
    [/TP_HORIZON.*576 h are kept, and a message can come again for 576\.\d+ h: 24 h in the outbox/],
    servers,
    [...args, '--dedup-ttl=24d'],
  );
  const payments = await startPayments(context, servers, args);
  assert.ok(payments.horizonMs! > 24 * dayMs && payments.horizonMs! < 24.1 * dayMs, String(payments.horizonMs));
  assert.equal(payments.ttlMs, payments.horizonMs! + dayMs);
  assert.match(payments.stderr(), /a message can come again for 24\.0\d days .*ids are kept for 25\.0\d days/);
  assert.equal(await payments.metric('payments_horizon_seconds'), payments.horizonMs! / 1_000);
  assert.equal(await payments.metric('payments_dedup_ttl_seconds'), payments.ttlMs / 1_000);
  assert.equal(await payments.stop(), 0);
});

test('a topic that keeps messages for ever is refused, unless it is said how far back anybody replays', async (context) => {
  const forEver = await kafka.createTopic('for-ever', { config: { 'retention.ms': '-1' } });
  const args = [`--topics=${forEver}`, `--group=${forEver}`];
  await assertRefuses(3, [/TP_HORIZON.*for ever \(retention.ms = -1\)/], servers, args);
  const payments = await startPayments(context, servers, [...args, '--replay-window=30d', '--outbox-wait=12h']);
  const hourMs = dayMs / 24;
  assert.equal(payments.horizonMs, 30 * dayMs + 12 * hourMs + hourMs / 6);
  assert.equal(await payments.stop(), 0);
});

test('experiments are refused in production, all with their reasons', async () => {
  const args = [
    '--unsafe-ttl',
    '--dedup-ttl=5s',
    '--no-unique-charge',
    '--crash-point=effect',
    '--dup-rate=0.1',
    `--topics=${topic}`,
  ];
  await assertRefuses(
    2,
    [
      /--unsafe-ttl: .*may charge an order twice/,
      /--no-unique-charge: /,
      /--crash-point=effect: /,
      /--dup-rate=0.1 --seed=1: /,
    ],
    servers,
    args,
    production,
  );
  const order = ['--effect-order=charge-first', '--no-unique-charge', `--topics=${topic}`];
  await assertRefuses(2, [/--effect-order=charge-first: /, /--no-unique-charge: /], servers, order, production);
});

test('partitions that are far too narrow are refused', async () => {
  const empty = { ...servers, databaseUrl: emptyUrl };
  const args = [`--topics=${topic}`, '--partition-width=1s'];
  await assertRefuses(2, [/TP_OPTION.*partitions of the inbox/], empty, args);
});

test('what is right starts in production too, and says where it is', async (context) => {
  const args = [`--topics=${topic}`, `--group=${kafka.group('right')}`];
  const payments = await startPayments(context, servers, args, production);
  assert.match(payments.admin, /^http:\/\/127\.0\.0\.1:\d+$/);
  assert.doesNotMatch(payments.stderr(), /WARNING/);
  assert.equal(await payments.stop(), 0, payments.stderr());
});

test('a port that is taken is said to be', async (context) => {
  const holder = createServer().listen(0, '127.0.0.1');
  context.after(() => holder.close());
  await once(holder, 'listening');
  const { port } = holder.address() as AddressInfo;
  const args = [`--topics=${topic}`, `--admin-port=${port}`];
  await assertRefuses(3, [new RegExp(`Port ${port} is taken`)], servers, args);
});
