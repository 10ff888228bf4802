import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { join } from 'node:path';
import { after, test } from 'node:test';
import pg from 'pg';
import { startPostgres } from '@twiceproof/infra/postgres';
import { testDatabase, testKafka } from '@twiceproof/infra/testing';
import { migrate } from 'twiceproof/migrations';
import { runRelay, startRelay } from './program-under-test.ts';

const { url } = await testDatabase();
const { url: emptyUrl } = await testDatabase();
const kafka = await testKafka();
const servers = { databaseUrl: url, brokers: kafka.bootstrap };
const pool = new pg.Pool({ connectionString: url, max: 2 });
after(async () => pool.end());
await migrate(pool);
const topic = await kafka.createTopic('right');
const production = { NODE_ENV: 'production' };

async function migrateAt(databaseUrl: string): Promise<void> {
  const other = new pg.Pool({ connectionString: databaseUrl, max: 1 });
  await migrate(other);
  await other.end();
}

/** It ends with this code, and says all of these. */
async function assertRefuses(code: number, said: RegExp[], ...call: Parameters<typeof runRelay>): Promise<void> {
  const result = await runRelay(...call);
  assert.equal(result.code, code, result.stderr);
  for (const words of said) assert.match(result.stderr, words);
}

test('--help names every flag, and all wrong flags are reported at once', async () => {
  const { code, stdout } = await runRelay(servers, ['--help']);
  assert.equal(code, 0);
  for (const flag of ['topics', 'batch', 'poll-interval-ms', 'watchdog-ms', 'grace-ms', 'json']) {
    assert.match(stdout, new RegExp(`--${flag}\\b`));
  }
  await assertRefuses(
    2,
    [
      /--batch is a whole number/,
      /--publish-deadline-ms is less than --idle-timeout-ms, not 30000 and 30000/,
      /--idle-timeout-ms is less than --watchdog-ms, not 30000 and 20000/,
      /--topics names no topic/,
      /unknown flag --shard/,
    ],
    servers,
    ['--batch=0', '--publish-deadline-ms=30000', '--watchdog-ms=20000', '--topics=,', '--shard=1'],
  );
});

test('without addresses it says which are missing', async () => {
  await assertRefuses(3, [/DATABASE_URL.*KAFKA_BROKERS/], { databaseUrl: '', brokers: '' });
});

test('a database and brokers that do not answer are both named, without the password', async () => {
  const nobody = { databaseUrl: 'postgres://me:secret@127.0.0.1:1/x', brokers: '127.0.0.1:1' };
  const { code, stderr, stdout } = await runRelay(nobody, ['--json']);
  assert.equal(code, 3, stderr);
  assert.match(stderr, /The outbox cannot be read: .*ECONNREFUSED.*\n.*Check DATABASE_URL/);
  assert.match(stderr, /TP_BROKER_UNREACHABLE.*\n.*Check KAFKA_BROKERS/);
  assert.doesNotMatch(stderr + stdout, /secret/);
  assert.match((JSON.parse(stdout) as { error: string }).error, /TP_BROKER_UNREACHABLE/);
});

test('a database that is not migrated, or not far enough, is refused', async () => {
  const empty = { ...servers, databaseUrl: emptyUrl };
  await assertRefuses(3, [/not migrated.*\n.*twiceproof migrate/], empty, [`--topics=${topic}`]);
  await migrateAt(emptyUrl);
  const client = new pg.Client(emptyUrl);
  await client.connect();
  await client.query('DROP TABLE twiceproof.relay_parked');
  await client.end();
  await assertRefuses(3, [/not migrated.*relay_parked/], empty, [`--topics=${topic}`]);
});

test('cursors of another cluster, or ahead of this one, are refused', async () => {
  const set = async (column: string, value: string): Promise<string> => {
    const before = await pool.query<{ value: string }>(`SELECT ${column}::text AS value FROM twiceproof.relay_cursor`);
    await pool.query(`UPDATE twiceproof.relay_cursor SET ${column} = $1`, [value]);
    return before.rows[0]!.value;
  };
  for (const [column, value, why] of [
    ['system_identifier', '42', /TP_CURSOR_FOREIGN.*another cluster.*\n.*repair/],
    ['prev', '99999999:99999999:', /TP_CURSOR_FOREIGN.*ahead/],
  ] as const) {
    const right = await set(column, value);
    await assertRefuses(3, [why], servers, [`--topics=${topic}`]);
    await set(column, right);
  }
});

test('a replica instead of the primary is refused, in every mode', async () => {
  const server = await startPostgres();
  try {
    await migrateAt(server.url);
    await server.stop();
    writeFileSync(join(server.directory, 'data/standby.signal'), '');
    await server.start();
    const standby = { ...servers, databaseUrl: server.url };
    await assertRefuses(3, [/TP_STANDBY.*\n.*Connect to the primary/], standby, [`--topics=${topic}`]);
  } finally {
    await server.close();
  }
});

test('a database that does not keep its word is refused in production, and warned of elsewhere', async (context) => {
  const careless = await startPostgres({ settings: { fsync: 'off' } });
  try {
    await migrateAt(careless.url);
    const there = { ...servers, databaseUrl: careless.url };
    await assertRefuses(3, [/fsync is off/], there, [`--topics=${topic}`], production);
    const relay = await startRelay(context, there, [`--topics=${topic}`]);
    assert.match(relay.stderr(), /WARNING.*fsync is off/);
    assert.equal(await relay.stop(), 0);
  } finally {
    await careless.close();
  }
});

test('topics that are missing, compacted or too small are refused, each with its reason', async () => {
  const compacted = await kafka.createTopic('compacted', { config: { 'cleanup.policy': 'compact' } });
  const both = await kafka.createTopic('both', { config: { 'cleanup.policy': 'compact,delete' } });
  const small = await kafka.createTopic('small', { config: { 'max.message.bytes': '1002047' } });
  const missing = kafka.group('missing');
  await assertRefuses(
    3,
    [
      new RegExp(`${compacted}: cleanup.policy is compact:`),
      new RegExp(`${both}: cleanup.policy is (compact,delete|delete,compact):`),
      new RegExp(`${small}: max.message.bytes is 1002047, and a message may need 1002048`),
      new RegExp(`${missing}: it does not exist.*\\n.*Create the topic`),
    ],
    servers,
    [`--topics=${[topic, compacted, both, small, missing].join(', ')}`],
  );
});

test('a topic from which acknowledged messages can be lost is refused in production, and warned of elsewhere', async (context) => {
  const config = { 'min.insync.replicas': '1', 'unclean.leader.election.enable': 'true' };
  const weak = await kafka.createTopic('weak', { config });
  const reasons = [/min.insync.replicas is 1, not 2/, /unclean.leader.election.enable is true/];
  await assertRefuses(3, reasons, servers, [`--topics=${weak}`], production);
  const relay = await startRelay(context, servers, [`--topics=${weak}`]);
  for (const reason of reasons) assert.match(relay.stderr(), new RegExp(`WARNING.*${reason.source}`));
  assert.equal(await relay.stop(), 0);
});

test('what is right starts in production too, and says where it is', async (context) => {
  const relay = await startRelay(context, servers, [`--topics=${topic}`], production);
  assert.match(relay.admin, /^http:\/\/127\.0\.0\.1:\d+$/);
  assert.doesNotMatch(relay.stderr(), /WARNING/);
  assert.equal(await relay.stop(), 0, relay.stderr());
});

test('a port that is taken is said to be', async () => {
  const holder = createServer().listen(0, '127.0.0.1');
  await once(holder, 'listening');
  const { port } = holder.address() as AddressInfo;
  await assertRefuses(3, [new RegExp(`Port ${port} is taken`)], servers, [`--topics=${topic}`, `--admin-port=${port}`]);
  holder.close();
});
