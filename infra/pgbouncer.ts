/**
 * A real PgBouncer in transaction mode, as many services have one before their database. Debian's, unpacked into the cache
 * and not installed: nothing of the machine is changed, and no service of its own is started.
 */
import { execFile } from 'node:child_process';
import { chownSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { Refusal } from '@twiceproof/program';
import { cachedDirectory, isRoot, nobody } from './directories.ts';
import { tryConnect } from './postgres.ts';
import type { Run } from './run.ts';
import { startServer, waitUntilReady } from './server-process.ts';

export interface PgBouncer {
  /** Like the server's own, but through the pooler. */
  readonly url: string;
  /** That went through it so far. */
  countTransactions(): Promise<number>;
  close(): Promise<void>;
}

export interface PgBouncerOptions {
  /** The server behind it, with user and password. */
  url: string;
  run: Run;
  port: number;
}

const execute = promisify(execFile);
const startTimeoutMs = 10_000;
/** To the server, for each database. */
const connections = 50;

export async function startPgBouncer({ url, run, port }: PgBouncerOptions): Promise<PgBouncer> {
  const { command, libraries } = await findPgBouncer();
  const server = new URL(url);
  const directory = join(run.openDirectory, 'pgbouncer');
  mkdirSync(directory);
  const users = join(directory, 'users.txt');
  // Its name is all that it can be told on the command line, and the mark must stand there.
  const configuration = join(directory, run.mark);
  writeFileSync(users, `"${server.username}" "${server.password}"\n`, { mode: 0o600 });
  const settings = {
    listen_addr: '127.0.0.1',
    listen_port: port,
    unix_socket_dir: '',
    auth_type: 'scram-sha-256',
    auth_file: users,
    admin_users: server.username,
    pool_mode: 'transaction',
    default_pool_size: connections,
    max_client_conn: 500,
    // Each transaction on another connection than the last, so that whatever is left on one is missed at once.
    server_round_robin: 1,
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  writeFileSync(
    configuration,
    ['[databases]', `* = host=127.0.0.1 port=${server.port}`, '[pgbouncer]', ...lines, ''].join('\n'),
  );
  if (isRoot) for (const path of [directory, users, configuration]) chownSync(path, nobody, nobody);
  const logFile = join(run.directory, 'pgbouncer.log');
  const process = await startServer({
    name: 'PgBouncer',
    command,
    args: [run.mark],
    logFile,
    cwd: directory,
    env: { LD_LIBRARY_PATH: libraries },
    ...(isRoot && { uid: nobody }),
  });
  const through = new URL(url);
  through.port = String(port);
  await waitUntilReady(
    process,
    { name: 'PgBouncer', logFile, timeoutMs: startTimeoutMs, todo: 'See what its log says.', endBy: 'SIGKILL' },
    async () => (await tryConnect(through.href)) === undefined,
  );
  return {
    url: through.href,
    countTransactions: async () => countTransactions(through),
    close: async () => process.end('SIGTERM', 2_000),
  };
}

/** It answers questions about itself as a database of this name would. */
async function countTransactions(through: URL): Promise<number> {
  const console = new URL(through);
  console.pathname = '/pgbouncer';
  const client = new pg.Client(console.href);
  await client.connect();
  try {
    const { rows } = await client.query<{ database: string; total_xact_count: string }>('SHOW STATS');
    const ofOthers = rows.filter(({ database }) => database !== 'pgbouncer');
    return ofOthers.reduce((sum, { total_xact_count: count }) => sum + Number(count), 0);
  } finally {
    await client.end();
  }
}

/** With the libraries of its own that a machine may not have; the others come with what Debian calls essential. */
async function findPgBouncer(): Promise<{ command: string; libraries: string }> {
  const directory = await cachedDirectory('pgbouncer', async (target) => {
    try {
      if (isRoot) await execute('apt-get', ['update', '-qq']);
      const { stdout } = await execute('apt-cache', ['depends', 'pgbouncer']);
      const libraries = [...stdout.matchAll(/Depends: (lib(?:c-?ares|event)\S*)/g)].map(([, name]) => name!);
      await execute('apt-get', ['download', '-qq', 'pgbouncer', ...libraries], { cwd: target });
      for (const file of readdirSync(target)) await execute('dpkg', ['-x', join(target, file), target]);
    } catch (cause) {
      throw new Refusal(
        `PgBouncer could not be had from Debian's packages: ${String(cause)}`,
        'This test needs Debian or one of its kin, and its package lists: run `apt-get update` as root.',
        undefined,
        { cause },
      );
    }
  });
  const libraries = join(directory, 'usr/lib');
  const ofPlatform = readdirSync(libraries).find((name) => name.endsWith('-linux-gnu')) ?? '';
  return { command: join(directory, 'usr/sbin/pgbouncer'), libraries: join(libraries, ofPlatform) };
}
