/**
 * For test files: a database and topics of their own, on the servers that DATABASE_URL and KAFKA_BROKERS
 * name (`npm test` sets both), or on servers that the file starts for itself when it is run alone. After
 * each test a leak check looks for what the test has left open (leaks.ts).
 */
import { randomBytes } from 'node:crypto';
import { after } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { kafkaAdmin, type KafkaAdmin } from './kafka-admin.ts';
import { startKafka } from './kafka.ts';
import {
  countConnections,
  countOwnConnections,
  databaseLeaks,
  explainHandles,
  kafkaLeaks,
  watchForLeaks,
  watchHandles,
} from './leaks.ts';
import { startPostgres, type PostgresServer } from './postgres.ts';

export { kafkaAdmin } from './kafka-admin.ts';

/**
 * The file's own `after` hooks, such as the end of a pool, come behind ours, and hooks wait for each other.
 * So this one lets them go on and works beside them; the process lives until it is done.
 */
function atTheEnd(cleanUp: () => Promise<void>): void {
  after(() => {
    cleanUp().catch((error: unknown) => {
      console.error(error);
      process.exitCode = 1;
    });
  });
}

/** All that one `npm test` makes on a server bears its scope, so that it can be removed together. */
const scope = process.env['TWICEPROOF_TEST_SCOPE'] ?? randomBytes(4).toString('hex');

export interface TestDatabase {
  /** A database that only this file uses. */
  url: string;
}

export interface Template {
  /** Names the state that `migrate` makes; files that say the same name share the template. */
  name: string;
  migrate(client: pg.Client): Promise<void>;
}

/** Call it once, at the top of a test file. */
export async function testDatabase(template?: Template): Promise<TestDatabase> {
  const shared = process.env['DATABASE_URL'];
  const own = shared ? undefined : await ownPostgres();
  const server = shared ?? own?.url ?? '';
  const admin = new pg.Client(server);
  await admin.connect();
  databasesOpen += 1;
  const name = `twiceproof_${scope}_${randomBytes(4).toString('hex')}`;
  const source = template ? await migratedTemplate(admin, server, template) : 'template1';
  await admin.query(`CREATE DATABASE ${name} TEMPLATE ${source}`);
  explainHandles(async (ports) => countOwnConnections(admin, name, ports));
  watchForLeaks(databaseLeaks(admin, name));
  watchHandles();
  atTheEnd(async () => {
    await untilDisconnected(admin, name);
    await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
    if (!process.env['TWICEPROOF_TEST_SCOPE'] && shared && databasesOpen === 1) await dropTestDatabases(admin, scope);
    await admin.end();
    databasesOpen -= 1;
    if (databasesOpen === 0) await own?.close();
  });
  return { url: onServer(server, name) };
}

/** A file that is run alone has one server, however many databases it asks for. */
let ownServer: Promise<PostgresServer> | undefined;
let databasesOpen = 0;

async function ownPostgres(): Promise<PostgresServer> {
  ownServer ??= startPostgres();
  return ownServer;
}

/** The leak check has spoken before; what is still open after a while is cut off. */
async function untilDisconnected(admin: pg.Client, name: string): Promise<void> {
  const deadline = Date.now() + 5_000;
  while ((await countConnections(admin, name)) > 0 && Date.now() < deadline) await delay(20);
}

/** Migrated once for each run of the tests; a copy takes a tenth of a second, whatever the migrations do. */
async function migratedTemplate(admin: pg.Client, server: string, template: Template): Promise<string> {
  const name = `twiceproof_${scope}_template_${template.name}`;
  // Files run in parallel, and the first to come migrates for all.
  await admin.query("SELECT pg_advisory_lock(hashtext('twiceproof test template'))");
  try {
    const { rowCount } = await admin.query('SELECT 1 FROM pg_database WHERE datname = $1', [name]);
    if (rowCount) return name;
    await admin.query(`DROP DATABASE IF EXISTS ${name}_building`);
    await admin.query(`CREATE DATABASE ${name}_building`);
    const client = new pg.Client(onServer(server, `${name}_building`));
    await client.connect();
    try {
      await template.migrate(client);
    } finally {
      await client.end();
    }
    await admin.query(`ALTER DATABASE ${name}_building RENAME TO ${name}`);
    return name;
  } finally {
    await admin.query("SELECT pg_advisory_unlock(hashtext('twiceproof test template'))");
  }
}

/** For the end of a run of tests, on a server that is not ours and lives on. */
export async function removeTestDatabases(databaseUrl: string, ofScope: string): Promise<void> {
  const admin = new pg.Client(databaseUrl);
  await admin.connect();
  try {
    await dropTestDatabases(admin, ofScope);
  } finally {
    await admin.end();
  }
}

async function dropTestDatabases(admin: pg.Client, ofScope: string): Promise<void> {
  const prefix = `twiceproof_${ofScope}_`;
  const { rows } = await admin.query<{ datname: string }>(
    'SELECT datname FROM pg_database WHERE starts_with(datname, $1)',
    [prefix],
  );
  for (const { datname } of rows) await admin.query(`DROP DATABASE ${datname} WITH (FORCE)`);
}

function onServer(server: string, database: string): string {
  const url = new URL(server);
  url.pathname = `/${database}`;
  return url.href;
}

export interface TestKafka {
  bootstrap: string;
  admin: KafkaAdmin;
  /** A topic that only one test uses; answers its full name. */
  createTopic(name: string, options?: { partitions?: number; config?: Record<string, string> }): Promise<string>;
  /** The name of a group that only one test uses. */
  group(name: string): string;
}

/** Call it once, at the top of a test file. */
export async function testKafka(): Promise<TestKafka> {
  const shared = process.env['KAFKA_BROKERS'];
  const own = shared ? undefined : await startKafka({ brokers: 3 });
  const bootstrap = shared ?? own?.bootstrap ?? '';
  const admin = kafkaAdmin(bootstrap);
  const prefix = `twiceproof-${scope}-${randomBytes(4).toString('hex')}-`;
  let names = 0;
  const unique = (name: string): string => `${prefix}${(names += 1)}-${name}`;
  await admin.liveGroups(prefix); // Opens its connections to all brokers now, so that they do not look like a test's.
  watchForLeaks(kafkaLeaks(admin, prefix));
  watchHandles();
  atTheEnd(async () => {
    if (!own) {
      await admin.deleteTopics(prefix);
      await admin.deleteGroups(prefix);
    }
    await admin.close();
    await own?.close();
  });
  return {
    bootstrap,
    admin,
    group: unique,
    createTopic: async (name, { partitions = 1, config = {} } = {}) => {
      const topic = unique(name);
      await admin.createTopic(topic, { partitions, config });
      return topic;
    },
  };
}
