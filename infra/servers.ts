/** The set that everything here runs on: one Postgres and one Kafka, each our own or one that is already there. */
import { join } from 'node:path';
import pg from 'pg';
import { EXIT, Refusal } from '@twiceproof/program';
import { openStateDirectory, stateDirectory } from './directories.ts';
import { kafkaAdmin } from './kafka-admin.ts';
import { startKafka, type KafkaCluster } from './kafka.ts';
import { startPostgres, type PostgresServer } from './postgres.ts';
import { listRuns, type Run } from './run.ts';

export interface Servers {
  databaseUrl: string;
  kafkaBrokers: string;
  /** What is there, one line each, for people. */
  descriptions: { postgres: string; kafka: string };
  /** Names of our own servers that have ended by themselves. */
  dead(): string[];
  close(): Promise<void>;
}

export interface ServersOptions {
  run: Run;
  brokers: 1 | 3;
  /** Keep the data for the next start. */
  keep: boolean;
  /** A server that is already there, instead of one of our own. */
  databaseUrl?: string | undefined;
  kafkaBrokers?: string | undefined;
  postgresPort?: number | undefined;
  kafkaPort?: number | undefined;
  progress: (text: string) => void;
  signal: AbortSignal;
}

/** Both at once; when one cannot be had, the other is stopped again. */
export async function startServers(options: ServersOptions): Promise<Servers> {
  const results = await Promise.allSettled([
    reported('Postgres', options.progress, obtainPostgres(options)),
    reported('Kafka', options.progress, obtainKafka(options)),
  ]);
  const [postgres, kafka] = results;
  if (postgres.status === 'fulfilled' && kafka.status === 'fulfilled') return combine(postgres.value, kafka.value);
  for (const result of results) if (result.status === 'fulfilled') await result.value.close();
  const reasons = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
  if (reasons.length === 1) throw asError(reasons[0]);
  const messages = reasons.map((reason) => asError(reason).message);
  throw new Refusal(messages[0] ?? '', messages[1] ?? '', EXIT.environment, { cause: reasons[0] });
}

interface Obtained {
  address: string;
  description: string;
  dead(): string[];
  close(): Promise<void>;
}

function combine(postgres: Obtained, kafka: Obtained): Servers {
  return {
    databaseUrl: postgres.address,
    kafkaBrokers: kafka.address,
    descriptions: { postgres: postgres.description, kafka: kafka.description },
    dead: () => [...postgres.dead(), ...kafka.dead()],
    close: async () => {
      await Promise.all([postgres.close(), kafka.close()]);
    },
  };
}

async function obtainPostgres(options: ServersOptions): Promise<Obtained> {
  if (options.databaseUrl) return theirPostgres(options.databaseUrl);
  const server: PostgresServer = await startPostgres({
    run: options.run,
    signal: options.signal,
    ...(options.postgresPort !== undefined && { port: options.postgresPort }),
    ...(options.keep && { directory: keptDirectory('postgres') }),
  });
  return {
    address: server.url,
    description: `Postgres ${server.version}`,
    dead: () => (server.running ? [] : [`Postgres (its log: ${server.logFile})`]),
    close: async () => (options.keep ? server.stop() : server.close()),
  };
}

async function obtainKafka(options: ServersOptions): Promise<Obtained> {
  if (options.kafkaBrokers) return theirKafka(options.kafkaBrokers);
  const cluster: KafkaCluster = await startKafka({
    run: options.run,
    brokers: options.brokers,
    progress: options.progress,
    signal: options.signal,
    ...(options.kafkaPort !== undefined && { port: options.kafkaPort }),
    // The voters of a cluster are part of its data, so one broker and three have data of their own.
    ...(options.keep && { directory: keptDirectory(`kafka-${options.brokers}`) }),
  });
  return {
    address: cluster.bootstrap,
    description: `Apache Kafka ${cluster.version}, ${options.brokers === 1 ? 'one broker' : 'three brokers'}`,
    dead: () =>
      cluster.brokers.filter(({ running }) => !running).map(({ id, logFile }) => `broker ${id} (its log: ${logFile})`),
    close: async () => cluster.close({ cleanly: options.keep }),
  };
}

export function keptDirectory(name = ''): string {
  return join(openStateDirectory(stateDirectory()), 'kept', name);
}

async function theirPostgres(url: string): Promise<Obtained> {
  let client: pg.Client | undefined;
  try {
    client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
    client.on('error', () => {});
    await client.connect();
    const { rows } = await client.query<{ server_version: string }>('SHOW server_version');
    return theirs(url, `Postgres ${rows[0]?.server_version} (yours, from DATABASE_URL)`);
  } catch (cause) {
    throw new Refusal(
      `DATABASE_URL names a Postgres that does not answer: ${withoutPassword(url)} (${reasonOf(cause)}).`,
      'Start that server or correct the address; unset DATABASE_URL to use our own.',
      undefined,
      { cause },
    );
  } finally {
    await client?.end().catch(() => {});
  }
}

async function theirKafka(bootstrap: string): Promise<Obtained> {
  const admin = kafkaAdmin(bootstrap);
  try {
    const brokers = await admin.countBrokers();
    return theirs(bootstrap, `Kafka with ${brokers} broker${brokers === 1 ? '' : 's'} (yours, from KAFKA_BROKERS)`);
  } catch (cause) {
    throw new Refusal(
      `KAFKA_BROKERS names brokers that do not answer: ${bootstrap} (${reasonOf(cause)}).`,
      'Start them or correct the addresses (host:port,host:port); unset KAFKA_BROKERS to use our own.',
      undefined,
      { cause },
    );
  } finally {
    await admin.close().catch(() => {});
  }
}

function theirs(address: string, description: string): Obtained {
  return { address, description, dead: () => [], close: async () => {} };
}

/** An address as it may be shown. What cannot be taken apart is not shown at all: a password may be anywhere in it. */
export function withoutPassword(address: string): string {
  try {
    const url = new URL(address);
    if (url.password) url.password = '***';
    if (url.searchParams.has('password')) url.searchParams.set('password', '***');
    return url.href;
  } catch {
    return 'an address that is no URL (postgres://user:password@host:port/database, special characters as %XX)';
  }
}

/** The innermost reason: clients wrap it, and a refusal on all addresses of a name comes with an empty message. */
function reasonOf(error: unknown): string {
  const { message, code, cause, errors } = error as NodeJS.ErrnoException & { errors?: unknown[] };
  const inner = cause ?? errors?.[0];
  if (inner) return reasonOf(inner);
  return withoutSecrets(message || code || String(error));
}

function withoutSecrets(text: string): string {
  return text.replaceAll(/\/\/[^\s@]*@/g, '//***@');
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}

/** Says every five seconds that it goes on, and when it is done. What takes longer has said so itself. */
async function reported<T>(name: string, progress: (text: string) => void, work: Promise<T>): Promise<T> {
  const began = Date.now();
  const seconds = (): string => `${((Date.now() - began) / 1000).toFixed(1)} s`;
  const stillAtIt = setInterval(() => progress(`${name}: still at it (${seconds()}) ...`), 5_000);
  try {
    const result = await work;
    progress(`${name}: ready after ${seconds()}`);
    return result;
  } finally {
    clearInterval(stillAtIt);
  }
}

/** Data that is kept has one owner at a time. */
export function refuseSecondKeeper(): void {
  const keeper = listRuns().find(({ alive, purpose }) => alive && purpose === 'keep');
  if (!keeper) return;
  throw new Refusal(
    `The kept data is in use by process ${keeper.owner.pid}.`,
    'Stop that one (`npm run infra -- down`), or start without --keep.',
  );
}
