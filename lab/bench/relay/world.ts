/** The servers under all cases of the relay: one Postgres and three brokers, and fresh databases and topics on them. */
import { Admin, ListOffsetTimestamps } from '@platformatic/kafka';
import pg from 'pg';
import { startKafka, type KafkaCluster } from '@twiceproof/infra/kafka';
import { kafkaAdmin } from '@twiceproof/infra/kafka-admin';
import { startPostgres, type PostgresServer } from '@twiceproof/infra/postgres';
import { runProgram } from '../children.ts';
import { serverSettings } from '../server.ts';
import { fillText, type Shape } from './rows.ts';

/** The topic of every backlog: a database that is filled once is copied for each run, and its rows name their topic. */
export const backlogTopic = 'backlog';
const partitions = 3;

export interface Form {
  shape: Shape;
  /** Of `ours`. */
  shards: number;
}

export interface Database {
  url: string;
  client: pg.Client;
  drop(): Promise<void>;
}

export interface World {
  postgres: PostgresServer;
  kafka: KafkaCluster;
  seed: number;
  /** Its own, with so many rows that are not published. */
  database(form: Form, rows: number): Promise<Database>;
  /** A new one, whose records bear the broker's time. */
  topic(): Promise<string>;
  /** How many records the brokers have acknowledged, since the topic was made. */
  published(topic: string): Promise<number>;
  close(): Promise<void>;
}

export async function startWorld(seed: number, signal: AbortSignal): Promise<World> {
  const postgres = await startPostgres({ settings: serverSettings, signal });
  let kafka: KafkaCluster | undefined;
  try {
    kafka = await startKafka({ brokers: 3, signal });
    return await describe(postgres, kafka, seed);
  } catch (error) {
    await kafka?.close();
    await postgres.close();
    throw error;
  }
}

async function describe(postgres: PostgresServer, kafka: KafkaCluster, seed: number): Promise<World> {
  const topics = kafkaAdmin(kafka.bootstrap);
  const offsets = new Admin({ clientId: 'bench', bootstrapBrokers: kafka.bootstrap.split(','), timeout: 10_000 });
  // A backlog of a million rows is written again and again; what lies more than two segments back goes.
  const config = { 'segment.bytes': '100000000', 'retention.bytes': '200000000' };
  await topics.createTopic(backlogTopic, { partitions, config });
  const main = await connect(postgres.url);
  const templates = new Map<string, Promise<string>>();
  let made = 0;

  async function template({ shape, shards }: Form, rows: number): Promise<string> {
    const name = `${rows === 0 ? 'empty' : `full_${rows}`}_${shape}_${shards}`;
    const known = templates.get(name) ?? makeTemplate(name, { shape, shards }, rows);
    templates.set(name, known);
    return known;
  }

  async function makeTemplate(name: string, form: Form, rows: number): Promise<string> {
    const source = rows === 0 ? 'template1' : await template(form, 0);
    await main.query(`CREATE DATABASE ${name} TEMPLATE ${source}`);
    if (rows === 0) await makeTables(urlOf(postgres, name), form);
    else await fill(urlOf(postgres, name), { ...form, rows, seed });
    return name;
  }

  return {
    postgres,
    kafka,
    seed,
    database: async (form, rows) => {
      const source = await template(form, rows);
      const name = `run_${(made += 1)}`;
      // Through the WAL, after the checkpoint: so no page has to go into the WAL as a whole when it is first changed.
      await main.query('CHECKPOINT');
      await main.query(`CREATE DATABASE ${name} TEMPLATE ${source} STRATEGY = wal_log`);
      const client = await connect(urlOf(postgres, name));
      return {
        url: urlOf(postgres, name),
        client,
        drop: async () => {
          await client.end();
          await main.query(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, [
            name,
          ]);
          await main.query(`DROP DATABASE ${name} WITH (FORCE)`);
        },
      };
    },
    topic: async () => {
      const name = `topic-${(made += 1)}`;
      await topics.createTopic(name, { partitions, config: { 'message.timestamp.type': 'LogAppendTime' } });
      return name;
    },
    published: async (topic) => {
      const asked = Array.from({ length: partitions }, (_, partitionIndex) => ({
        partitionIndex,
        timestamp: ListOffsetTimestamps.LATEST,
      }));
      const [listed] = await offsets.listOffsets({ topics: [{ name: topic, partitions: asked }] });
      return (listed?.partitions ?? []).reduce((sum, { offset }) => sum + Number(offset), 0);
    },
    close: async () => {
      await main.end();
      await offsets.close();
      await topics.close();
      await Promise.all([kafka.close(), postgres.close()]);
    },
  };
}

async function makeTables(url: string, { shape, shards }: Form): Promise<void> {
  const env = { DATABASE_URL: url };
  if (shape === 'ours') await runProgram('packages/twiceproof/src/cli/main.ts', ['migrate', `--shards=${shards}`], env);
  else await runProgram(`lab/baselines/${shape}.ts`, ['prepare'], env);
}

/** As any table is after a while: its pages are known to be visible to all, and its statistics are made. */
export async function fill(
  url: string,
  { shape, shards, rows, seed }: Form & { rows: number; seed: number },
): Promise<void> {
  const client = await connect(url);
  try {
    await client.query('SET synchronous_commit = off');
    await client.query(fillText(shape, { rows, topic: backlogTopic, shards, seed }));
    await client.query('VACUUM (ANALYZE)');
  } finally {
    await client.end();
  }
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'bench' });
  // A server that is stopped ends its connections; whoever needs one of them learns it from the statement.
  client.on('error', () => {});
  await client.connect();
  return client;
}

function urlOf(postgres: PostgresServer, database: string): string {
  const url = new URL(postgres.url);
  url.pathname = `/${database}`;
  return url.href;
}
