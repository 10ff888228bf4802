/** All that a trial of the relay needs, on loopback and of its own: Postgres, a proxy before it, three brokers. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { kafkaAdmin, type KafkaAdmin } from '@twiceproof/infra/kafka-admin';
import { startKafka, type KafkaCluster } from '@twiceproof/infra/kafka';
import { startPostgres, type PostgresServer } from '@twiceproof/infra/postgres';
import pg from 'pg';
import { startProxy, type FaultProxy } from '../proxy/proxy.ts';
import type { Supervised } from '../supervisor/process.ts';
import { supervise, type Lab } from '../supervisor/supervise.ts';

export interface RelayWorld {
  server: PostgresServer;
  kafka: KafkaCluster;
  admin: KafkaAdmin;
  /** Between a relay and Postgres, where a trial wants it. */
  proxy: FaultProxy;
  lab: Lab;
  /** For writers and for the judge. */
  database: pg.Pool;
  /** Answers before it is ready. */
  startRelay(role: string, options?: { throughProxy?: boolean; args?: readonly string[] }): Promise<Supervised>;
  /** Names that no other trial uses. A topic of that name is not there yet. */
  newName(): string;
  close(): Promise<void>;
}

export const shards = 2;
/** Short ones, in the order in which they have to be. */
export const times = { publishDeadlineMs: 4_000, idleTimeoutMs: 5_000, watchdogMs: 6_000 };

const root = join(import.meta.dirname, '../..');
const ours = ['--conditions=twiceproof-source'];

export async function openRelayWorld(): Promise<RelayWorld> {
  const [server, kafka, lab] = await Promise.all([startPostgres(), startKafka({ brokers: 3 }), supervise()]);
  const proxy = await startProxy({ target: { host: '127.0.0.1', port: server.port } });
  const admin = kafkaAdmin(kafka.bootstrap);
  const database = new pg.Pool({ connectionString: server.url, max: 12 });
  database.on('error', () => {}); // The server is killed in some trials, and an idle connection tells so here.
  migrate(server.url);
  await admin.createTopic('order.events', { partitions: 3 }); // The relay looks for it when it starts.
  await database.query('CREATE TABLE aggregates (id text PRIMARY KEY, version int NOT NULL)');
  const throughProxy = new URL(server.url);
  throughProxy.host = proxy.address;
  let names = 0;
  return {
    server,
    kafka,
    admin,
    proxy,
    lab,
    database,
    startRelay: async (role, options = {}) =>
      lab.start({
        role,
        command: process.execPath,
        args: [
          ...ours,
          'apps/relay/main.ts',
          '--json',
          '--admin-port=0',
          '--batch=50',
          '--poll-interval-ms=5',
          `--publish-deadline-ms=${times.publishDeadlineMs}`,
          `--idle-timeout-ms=${times.idleTimeoutMs}`,
          `--watchdog-ms=${times.watchdogMs}`,
          ...(options.args ?? []),
        ],
        env: { DATABASE_URL: options.throughProxy ? throughProxy.href : server.url, KAFKA_BROKERS: kafka.bootstrap },
        cwd: root,
      }),
    newName: () => `trial-${(names += 1)}`,
    close: async () => {
      await lab.close();
      await proxy.close();
      await database.end();
      await admin.close();
      await Promise.all([server.close(), kafka.close()]);
    },
  };
}

function migrate(databaseUrl: string): void {
  const cli = join(root, 'packages/twiceproof/src/cli/main.ts');
  execFileSync(process.execPath, [...ours, cli, 'migrate', `--shards=${shards}`], {
    env: { ...process.env, DATABASE_URL: databaseUrl },
  });
}
