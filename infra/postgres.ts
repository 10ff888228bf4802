/** A real Postgres of our own: cloned from a cached template, on loopback, with a password. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { Refusal } from '@twiceproof/program';
import { cachedDirectory, requireFreeSpace } from './directories.ts';
import { findPostgres, type PostgresBinaries } from './postgres-binaries.ts';
import { freePorts, requireFreePort } from './ports.ts';
import { listProcesses, signalIfStillRunning, waitUntilEnded } from './processes.ts';
import { beginRun, type Run } from './run.ts';
import { freeSharedMemory } from './shared-memory.ts';
import { startServer, waitUntilReady, type ServerProcess } from './server-process.ts';

export interface PostgresOptions {
  /** The run that it belongs to. Without one it gets its own, which ends with `close`. */
  run?: Run;
  /** Defaults to a free port. */
  port?: number;
  /** Where to keep the cluster beyond the run. Defaults to a new cluster inside the run. */
  directory?: string;
  /** Further server settings, as on its command line. */
  settings?: Readonly<Record<string, string>>;
  /** Ends a start that is under way. */
  signal?: AbortSignal;
}

export interface PostgresServer {
  /** As superuser, database `postgres`. */
  readonly url: string;
  readonly port: number;
  readonly version: string;
  readonly directory: string;
  readonly logFile: string;
  readonly pid: number;
  readonly running: boolean;
  /** Again, on the same data and port, after `stop` or `kill`. */
  start(): Promise<void>;
  /** Cleanly: open transactions are rolled back, a checkpoint is written. */
  stop(): Promise<void>;
  /** SIGKILL to every process of the server at once. */
  kill(): Promise<void>;
  /** For good, as fast as it goes: what is written now would only be deleted. */
  close(): Promise<void>;
}

/** Postgres 18 with everything that twiceproof may use. Durability stays on: the lab tests it. */
export const postgresSettings = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  wal_level: 'logical',
  max_connections: '200',
  // In the data directory, so that nothing of it is left when the server is killed and the data removed.
  dynamic_shared_memory_type: 'mmap',
} as const;

const execute = promisify(execFile);
const neededBytes = 300e6;
const startTimeoutMs = 30_000;

export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  if (options.port !== undefined) await requireFreePort(options.port, 'Postgres', '--postgres-port');
  const binaries = await findPostgres();
  const run = options.run ?? (await beginRun('postgres'));
  try {
    const directory = options.directory ?? join(run.openDirectory, 'postgres');
    requireFreeSpace(directory, neededBytes, 'Postgres');
    await createCluster(binaries, directory);
    const server = await serve(binaries, directory, run, options);
    await server.start();
    return server;
  } catch (error) {
    if (!options.run) await run.end();
    throw error;
  }
}

/** A cluster is a directory with `data` and, since a copy must be usable on its own, the `password` of its superuser. */
async function createCluster(binaries: PostgresBinaries, directory: string): Promise<void> {
  const versionFile = join(directory, 'data/PG_VERSION');
  if (existsSync(versionFile)) {
    const found = readFileSync(versionFile, 'utf8').trim();
    const major = binaries.version.split('.')[0];
    if (found === major) return;
    throw new Refusal(
      `The data directory ${directory} was made by Postgres ${found}, and this is Postgres ${major}.`,
      'Delete that directory to begin anew, or run the old server yourself and name it in DATABASE_URL.',
    );
  }
  const template = await cachedDirectory(`postgres-${binaries.version}-template`, (target) => initdb(binaries, target));
  mkdirSync(directory, { recursive: true });
  await execute('cp', ['-Rp', `${template}/.`, directory]);
}

/** About 1 s; a copy of the result takes a tenth of that. */
async function initdb(binaries: PostgresBinaries, directory: string): Promise<void> {
  const data = join(directory, 'data');
  const password = join(directory, 'password');
  writeFileSync(password, randomBytes(18).toString('base64url'), { mode: 0o600 });
  mkdirSync(data, { mode: 0o700 });
  if (binaries.uid !== undefined) {
    for (const path of [directory, data, password]) chownSync(path, binaries.uid, binaries.uid);
  }
  const locale = ['--encoding=UTF8', '--no-locale', '--locale-provider=builtin', '--builtin-locale=C.UTF-8'];
  const authentication = ['--username=postgres', `--pwfile=${password}`, '--auth=scram-sha-256'];
  await execute(binaries.initdb, ['-D', data, '--no-sync', ...locale, ...authentication], {
    cwd: directory,
    ...(binaries.uid !== undefined && { uid: binaries.uid, gid: binaries.uid }),
  });
}

async function serve(
  binaries: PostgresBinaries,
  directory: string,
  run: Run,
  options: PostgresOptions,
): Promise<PostgresServer> {
  const port = options.port ?? (await freePorts(1))[0]!;
  const password = readFileSync(join(directory, 'password'), 'utf8');
  const url = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
  const logFile = join(run.directory, 'postgres.log');
  const settings = { ...postgresSettings, ...options.settings, port: String(port) };
  const [markName = '', markValue = ''] = run.mark.split('=');
  const args = Object.entries({ ...settings, [markName]: markValue }).flatMap(([key, value]) => [
    '-c',
    `${key}=${value}`,
  ]);
  let server: ServerProcess | undefined;

  const start = async (): Promise<void> => {
    server = await startServer({
      name: 'Postgres',
      command: binaries.postgres,
      args: ['-D', join(directory, 'data'), ...args],
      logFile,
      cwd: directory,
      ...(binaries.uid !== undefined && { uid: binaries.uid }),
    });
    const todo = 'Correct what the log says; deleting the data directory begins anew.';
    const about = {
      name: 'Postgres',
      logFile,
      timeoutMs: startTimeoutMs,
      todo,
      signal: options.signal,
      endBy: 'SIGQUIT' as const,
    };
    await waitUntilReady(server, about, async () => (await tryConnect(url)) === undefined);
  };
  return {
    url,
    port,
    version: binaries.version,
    directory,
    logFile,
    get pid() {
      return server?.pid ?? 0;
    },
    get running() {
      return server?.running ?? false;
    },
    start,
    stop: async () => server?.end('SIGINT', 15_000),
    kill: async () => {
      if (server?.running) await killWithChildren(server);
    },
    close: async () => {
      await server?.end('SIGQUIT', 5_000);
      await freeSharedMemory(join(directory, 'data'));
      if (!options.run) await run.end();
    },
  };
}

/** Backends outlive a killed postmaster for a moment, and no other can start on the data until they are gone. */
async function killWithChildren(server: ServerProcess): Promise<void> {
  const children = listProcesses().filter((process) => process.parent === server.pid);
  const ended = server.end('SIGKILL', 0);
  for (const child of children) signalIfStillRunning(child, 'SIGKILL');
  await ended;
  await waitUntilEnded(children, 5_000);
}

/** Undefined when the server answers, else why it does not. */
export async function tryConnect(url: string, timeoutMs = 5_000): Promise<Error | undefined> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: timeoutMs });
  client.on('error', () => {});
  try {
    await client.connect();
    return undefined;
  } catch (error) {
    return error as Error;
  } finally {
    await client.end().catch(() => {});
  }
}
