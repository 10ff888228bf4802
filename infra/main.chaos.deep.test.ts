import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { after, test, type TestContext } from 'node:test';
import pg from 'pg';
import { kafkaAdmin } from './kafka-admin.ts';
import { listProcesses, type ProcessInfo } from './processes.ts';
import { sweepDeadRuns } from './run.ts';

/** Of its own, so that `down` and kept data are never those of the person who runs the tests. */
const state = mkdtempSync(join(tmpdir(), 'twiceproof-state-'));
chmodSync(state, 0o755);
after(() => rmSync(state, { recursive: true }));

interface Ready {
  ready: boolean;
  databaseUrl: string;
  kafkaBrokers: string;
  directory: string;
  pid: number;
}

function infra(
  t: TestContext,
  args: string[],
  env: NodeJS.ProcessEnv = {},
): { child: ChildProcess; stderr: () => string; stdout: () => string } {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts'), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, TWICEPROOF_STATE_DIR: state, DATABASE_URL: '', KAFKA_BROKERS: '', ...env },
  });
  t.after(() => child.kill('SIGKILL'));
  const text = { stdout: '', stderr: '' };
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => (text.stderr += chunk));
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text.stdout += chunk));
  return { child, stderr: () => text.stderr, stdout: () => text.stdout };
}

async function up(
  t: TestContext,
  args: string[] = [],
  env: NodeJS.ProcessEnv = {},
): Promise<{ child: ChildProcess; ready: Ready }> {
  const { child, stderr } = infra(t, ['up', '--brokers', '1', '--json', ...args], env);
  const line = await Promise.race([once(createInterface({ input: child.stdout! }), 'line'), once(child, 'exit')]);
  assert.equal(typeof line[0], 'string', stderr());
  return { child, ready: JSON.parse(String(line[0])) as Ready };
}

function processesOf({ directory }: Ready): ProcessInfo[] {
  const mark = new RegExp(`twiceproof\\.run=${basename(directory)}$`);
  return listProcesses().filter(({ argv }) => argv.some((argument) => mark.test(argument)));
}

async function eventually(condition: () => boolean, what: string): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `within 10 s: ${what}`);
    await delay(50);
  }
}

async function answers({ databaseUrl, kafkaBrokers }: Ready): Promise<void> {
  const client = new pg.Client(databaseUrl);
  await client.connect();
  assert.deepEqual((await client.query('SELECT 1 AS one')).rows, [{ one: 1 }]);
  await client.end();
  const admin = kafkaAdmin(kafkaBrokers);
  assert.equal(await admin.countBrokers(), 1);
  await admin.close();
}

test('up prints addresses that clients can use; SIGTERM stops all and removes the run', async (t) => {
  const { child, ready } = await up(t);
  assert.equal(ready.ready, true);
  await answers(ready);
  assert.equal(processesOf(ready).length, 2);
  child.kill('SIGTERM');
  assert.deepEqual(await once(child, 'exit'), [0, null]);
  assert.deepEqual(processesOf(ready), []);
  assert.equal(existsSync(ready.directory), false);
});

test('started by npm: SIGTERM to npm drains, and kill -9 of npm leaves nothing', async (t) => {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    const npm = spawn('npm', ['run', '--silent', 'infra', '--', 'up', '--brokers', '1', '--json'], {
      cwd: join(import.meta.dirname, '..'),
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { ...process.env, TWICEPROOF_STATE_DIR: state, DATABASE_URL: '', KAFKA_BROKERS: '' },
    });
    t.after(() => npm.kill('SIGKILL'));
    const [line] = (await once(createInterface({ input: npm.stdout }), 'line')) as [string];
    const ready = JSON.parse(line) as Ready;
    assert.equal(processesOf(ready).length, 2);
    npm.kill(signal);
    await eventually(
      () => processesOf(ready).length === 0 && !existsSync(ready.directory),
      `nothing is left after ${signal}`,
    );
  }
});

test('a path with spaces and umlauts is a path like any other', async (t) => {
  const odd = join(state, 'a b ümläut');
  const { child, ready } = await up(t, [], { TWICEPROOF_STATE_DIR: odd, LC_ALL: 'C' });
  await answers(ready);
  child.kill('SIGKILL');
  await eventually(() => processesOf(ready).length === 0 && !existsSync(ready.directory), 'nothing is left');
});

test('a server that dies: said so, with its log, which is still there', async (t) => {
  const { child, stderr } = infra(t, ['up', '--brokers', '1', '--json']);
  const [line] = (await once(createInterface({ input: child.stdout! }), 'line')) as [string];
  const ready = JSON.parse(line) as Ready;
  const broker = processesOf(ready).find(({ argv }) => argv[0]?.endsWith('java'));
  process.kill(broker!.pid, 'SIGKILL');
  assert.deepEqual(await once(child, 'close'), [1, null]);
  const log = /Ended unexpectedly: broker 1 \(its log: (.*)\)/.exec(stderr())?.[1] ?? '';
  assert.ok(readFileSync(log, 'utf8').includes('Kafka Server started'), log);
  assert.equal(existsSync(ready.directory), false);
});

test('what cannot be read in the state directory is left alone, and stands in nobody’s way', async (t) => {
  const own = join(state, 'garbage');
  const precious = join(own, 'precious');
  const records = {
    empty: '',
    half: '{"id":',
    none: '{}',
    lie: JSON.stringify({ id: 'lie', owner: { pid: 1, startedAt: '0' }, world: '', openDirectory: precious }),
  };
  for (const [id, text] of Object.entries(records)) {
    mkdirSync(join(own, 'runs', id), { recursive: true });
    writeFileSync(join(own, 'runs', id, 'run.json'), text);
  }
  mkdirSync(precious);
  const status = infra(t, ['status', '--json'], { TWICEPROOF_STATE_DIR: own });
  assert.deepEqual(await once(status.child, 'close'), [0, null], status.stderr());
  assert.equal(existsSync(precious), true);
});

test('told to stop while it starts: it stops, leaves nothing, and that is no failure', async (t) => {
  for (const afterMs of [100, 900]) {
    const own = join(state, `early-${afterMs}`);
    const { child, stderr } = infra(t, ['up', '--brokers', '1', '--json'], { TWICEPROOF_STATE_DIR: own });
    await eventually(() => stderr().includes('starting'), 'it begins');
    setTimeout(() => child.kill('SIGTERM'), afterMs);
    assert.deepEqual(await once(child, 'close'), [0, null], stderr());
    assert.match(stderr(), /stopped; nothing is left running\.\n$/);
    assert.deepEqual(readdirSync(join(own, 'runs')), []);
  }
});

test('kill -9 of the parent: its servers are gone within seconds, those of another run are not', async (t) => {
  const [first, second] = await Promise.all([up(t), up(t)]);
  assert.notEqual(first.ready.directory, second.ready.directory);
  first.child.kill('SIGKILL');
  await eventually(
    () => processesOf(first.ready).length === 0 && !existsSync(first.ready.directory),
    'nothing is left',
  );
  await answers(second.ready);
  second.child.kill('SIGTERM');
  assert.deepEqual(await once(second.child, 'exit'), [0, null]);
});

test('kill -9 of the parent and of its reaper: the next start cleans up, and touches nothing else', async (t) => {
  const { child, ready } = await up(t);
  const id = basename(ready.directory);
  const reaper = listProcesses().find(
    ({ argv }) => argv.some((argument) => argument.endsWith(id)) && argv[1]?.endsWith('reaper.ts'),
  );
  assert.ok(reaper);
  // Bears the mark, as somebody's search for it might, but is no server.
  const bystander = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)', `twiceproof.run=${id}`]);
  t.after(() => bystander.kill('SIGKILL'));
  process.kill(reaper.pid, 'SIGKILL');
  child.kill('SIGKILL');
  await once(child, 'exit');
  assert.equal(processesOf(ready).length, 3, 'two orphans and the bystander');
  await sweepDeadRuns(state);
  assert.deepEqual(
    processesOf(ready).map(({ pid }) => pid),
    [bystander.pid],
  );
  assert.equal(existsSync(ready.directory), false);
});

test('status shows a run, down stops it, and kept data comes back', async (t) => {
  const { child, ready } = await up(t, ['--keep']);
  const client = new pg.Client(ready.databaseUrl);
  await client.connect();
  await client.query('DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 42 AS n');
  await client.end();
  const admin = kafkaAdmin(ready.kafkaBrokers);
  const topic = `kept-${ready.pid}`;
  await admin.createTopic(topic, { partitions: 1 });
  await admin.close();

  const second = infra(t, ['up', '--keep', '--brokers', '1']);
  assert.deepEqual(await once(second.child, 'exit'), [3, null]);
  assert.match(second.stderr(), new RegExp(`The kept data is in use by process ${ready.pid}\\.`));

  const status = infra(t, ['status', '--json']);
  await once(status.child, 'close');
  const { runs } = JSON.parse(status.stdout()) as { runs: { id: string; databaseUrl?: string }[] };
  assert.equal(runs.find(({ id }) => id === basename(ready.directory))?.databaseUrl, ready.databaseUrl);

  const down = infra(t, ['down', '--json']);
  const stopped = once(child, 'exit');
  assert.deepEqual(await once(down.child, 'close'), [0, null], down.stderr());
  assert.deepEqual(await stopped, [0, null]);
  assert.deepEqual(JSON.parse(down.stdout()), { stopped: [basename(ready.directory)] });

  const again = await up(t, ['--keep']);
  const reader = new pg.Client(again.ready.databaseUrl);
  await reader.connect();
  assert.deepEqual((await reader.query('SELECT n FROM kept')).rows, [{ n: 42 }]);
  await reader.end();
  const topics = kafkaAdmin(again.ready.kafkaBrokers);
  await topics.deleteTopics(topic);
  await topics.close();
  again.child.kill('SIGTERM');
  await once(again.child, 'exit');
});

test('servers of your own: an unreachable one is refused with the address, without its password', async (t) => {
  const database = infra(t, ['up', '--json'], {
    DATABASE_URL: 'postgres://me:secret@127.0.0.1:1/shop',
    KAFKA_BROKERS: '127.0.0.1:1',
  });
  assert.deepEqual(await once(database.child, 'close'), [3, null]);
  assert.match(
    database.stderr(),
    /DATABASE_URL names a Postgres that does not answer: postgres:\/\/me:\*\*\*@127\.0\.0\.1:1\/shop \(.*ECONNREFUSED.*\)\.\n {2}Start that server or correct the address/,
  );
  assert.ok(!database.stderr().includes('secret') && !database.stdout().includes('secret'));
});

test('addresses that make no sense are refused in words, and never show a password', async (t) => {
  for (const DATABASE_URL of [
    'postgres://u:p/s3cret@127.0.0.1:1/x',
    'postgres://u@127.0.0.1:1/x?password=s3cret',
    'garbage s3cret',
  ]) {
    const { child, stderr, stdout } = infra(t, ['up', '--json'], { DATABASE_URL, KAFKA_BROKERS: '127.0.0.1:1' });
    assert.deepEqual(await once(child, 'close'), [3, null], stderr());
    assert.match(stderr(), /DATABASE_URL names a Postgres that does not answer/);
    assert.match(stderr(), /KAFKA_BROKERS names brokers that do not answer: 127\.0\.0\.1:1 \(.*ECONNREFUSED.*\)/);
    assert.ok(!stderr().includes('s3cret') && !stdout().includes('s3cret'), stderr());
  }
});

test('servers of your own are used instead of ours, and live on', async (t) => {
  const theirs = await up(t);
  const { child, ready } = await (async () => {
    const started = infra(t, ['up', '--json'], {
      DATABASE_URL: theirs.ready.databaseUrl,
      KAFKA_BROKERS: theirs.ready.kafkaBrokers,
    });
    const [line] = (await once(createInterface({ input: started.child.stdout! }), 'line')) as [string];
    return { child: started.child, ready: JSON.parse(line) as Ready };
  })();
  assert.deepEqual([ready.databaseUrl, ready.kafkaBrokers], [theirs.ready.databaseUrl, theirs.ready.kafkaBrokers]);
  assert.equal(processesOf(ready).length, 0, 'it started none');
  child.kill('SIGTERM');
  await once(child, 'exit');
  await answers(theirs.ready);
  theirs.child.kill('SIGTERM');
  await once(theirs.child, 'exit');
});
