import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { listProcesses } from './processes.ts';
import { startPostgres } from './postgres.ts';

const directory = mkdtempSync(join(tmpdir(), 'twiceproof-postgres-'));
after(() => rmSync(directory, { recursive: true }));

async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(url);
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(text)).rows;
  } finally {
    await client.end();
  }
}

test('a cluster has what we need, asks for a password, and listens on loopback only', async () => {
  const server = await startPostgres();
  try {
    const [row] = await query(
      server.url,
      `SELECT current_setting('wal_level') AS wal, current_setting('fsync') AS fsync, current_setting('server_version_num')::int / 10000 AS major,
              current_setting('listen_addresses') AS addresses, current_setting('unix_socket_directories') AS sockets`,
    );
    assert.deepEqual(row, { wal: 'logical', fsync: 'on', major: 18, addresses: '127.0.0.1', sockets: '' });
    const wrong = new URL(server.url);
    wrong.password = 'guess';
    await assert.rejects(query(wrong.href, 'SELECT 1'), /password authentication failed/);
  } finally {
    await server.close();
  }
});

test('what was committed survives SIGKILL and a clean stop, on the same port; close leaves no process', async () => {
  const server = await startPostgres();
  await query(server.url, 'CREATE TABLE kept (n int)');
  const client = new pg.Client(server.url);
  client.on('error', () => {});
  await client.connect();
  await client.query('INSERT INTO kept VALUES (1)');
  await client.query('BEGIN');
  await client.query('INSERT INTO kept VALUES (2)');

  const { pid } = server;
  const children = listProcesses().filter(({ parent }) => parent === pid);
  assert.ok(children.length > 3, 'it has children');
  await server.kill();
  assert.equal(server.running, false);
  const alive = listProcesses().filter((each) => [pid, ...children.map((child) => child.pid)].includes(each.pid));
  assert.deepEqual(alive, [], 'SIGKILL took all of them');
  await client.end().catch(() => {});

  await server.start();
  assert.deepEqual(await query(server.url, 'SELECT n FROM kept'), [{ n: 1 }], 'committed is there, open is not');
  await server.stop();
  await server.start();
  assert.deepEqual(await query(server.url, 'SELECT n FROM kept'), [{ n: 1 }]);
  await server.kill();
  await server.close();
  assert.ok(!listProcesses().some(({ argv }) => argv.some((argument) => argument.includes(server.directory))));
});

/** System V segments, and files of shared memory, that belong to Postgres servers. Others may start and stop theirs beside us. */
function sharedMemory({ ofTheDead = false } = {}): string[] {
  const table = existsSync('/proc/sysvipc/shm') ? readFileSync('/proc/sysvipc/shm', 'utf8').trim().split('\n') : [];
  const segments = table.slice(1).map((line) => {
    const [key, id, , , maker] = line.trim().split(/\s+/);
    return { name: `${key} ${id}`, maker };
  });
  const files = existsSync('/dev/shm') ? readdirSync('/dev/shm').filter((file) => file.startsWith('PostgreSQL')) : [];
  const chosen = segments.filter(({ maker }) => !ofTheDead || !existsSync(`/proc/${maker}`));
  return [...chosen.map(({ name }) => name), ...files];
}

/** A server that somebody else has killed beside us leaves some until it is started again. What is left by us stays. */
async function nothingIsLeft(ofOurs: (name: string) => boolean): Promise<void> {
  const deadline = performance.now() + 20_000;
  for (;;) {
    const left = sharedMemory({ ofTheDead: true }).filter(ofOurs);
    if (left.length === 0) return;
    assert.ok(performance.now() < deadline, `shared memory is left: ${left.join(', ')}`);
    await delay(50);
  }
}

/** A child of a server that has died ends by itself, perhaps before we come to it. */
function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, 'ESRCH');
  }
}

test('no shared memory is left: not by SIGKILL from outside, nor by a start that is told to stop', async () => {
  const before = sharedMemory();
  const server = await startPostgres();
  const made = sharedMemory().filter((each) => !before.includes(each));
  assert.ok(made.length > 0, 'a running server has some');
  const children = listProcesses().filter(({ parent }) => parent === server.pid);
  process.kill(server.pid, 'SIGKILL');
  for (const { pid } of children) killIfThere(pid);
  await server.close();
  await nothingIsLeft((each) => made.includes(each));

  for (const afterMs of [0, 30, 60]) {
    const stop = new AbortController();
    const before2 = sharedMemory();
    const starting = startPostgres({ signal: stop.signal });
    setTimeout(() => stop.abort(), afterMs);
    await starting.then(async (started) => started.close()).catch(() => {});
    await nothingIsLeft((each) => !before2.includes(each));
  }
});

test('the shared memory of a killed server is freed when the last of its processes has let go of it', async () => {
  const before = sharedMemory();
  const server = await startPostgres();
  const made = sharedMemory().filter((each) => !before.includes(each));
  const children = listProcesses().filter(({ parent }) => parent === server.pid);
  // One that dies late.
  process.kill(children[0]!.pid, 'SIGSTOP');
  process.kill(server.pid, 'SIGKILL');
  const closed = server.close();
  await delay(500);
  for (const { pid } of children) killIfThere(pid);
  await closed;
  await nothingIsLeft((each) => made.includes(each));
});

test('stop is a clean one: nothing has to be recovered at the next start', async () => {
  const server = await startPostgres();
  await server.stop();
  await server.start();
  const log = readFileSync(server.logFile, 'utf8');
  await server.close();
  assert.match(log, /database system was shut down at/);
  assert.doesNotMatch(log, /was not properly shut down|was interrupted/);
});

test('the data directory of another version is refused, and left alone', async () => {
  const old = join(directory, 'old');
  mkdirSync(join(old, 'data'), { recursive: true });
  writeFileSync(join(old, 'data/PG_VERSION'), '17\n');
  await assert.rejects(startPostgres({ directory: old }), {
    name: 'Refusal',
    message: /was made by Postgres 17, and this is Postgres 18\.\n {2}Delete that directory/,
  });
});

test('a server that does not come up shows the end of its log', async () => {
  await assert.rejects(startPostgres({ settings: { shared_buffers: 'plenty' } }), {
    name: 'Refusal',
    message:
      /Postgres ended while it started\. The end of .*postgres\.log:\n +.*invalid value for parameter "shared_buffers"/s,
  });
});
