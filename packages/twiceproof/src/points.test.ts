import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test, type TestContext } from 'node:test';
import { pointsFrom } from './points.ts';

interface Report {
  id: number;
  name: string;
  hit: number;
  pid: number;
}

interface Supervisor {
  path: string;
  /** The next report that has come, or comes. */
  next(): Promise<Report>;
  answer(line: number | string): void;
  vanish(): void;
}

/** The other end of the socket, as small as it can be; the real one is lab/supervisor. */
async function supervisor(t: TestContext): Promise<Supervisor> {
  const directory = mkdtempSync(join(tmpdir(), 'tp-'));
  const path = join(directory, 's');
  const reports: Report[] = [];
  const asking: ((report: Report) => void)[] = [];
  let socket: Socket | undefined;
  const server = createServer((accepted) => {
    socket = accepted.on('error', () => {});
    createInterface({ input: accepted }).on('line', (line) => {
      const report = JSON.parse(line) as Report;
      const ask = asking.shift();
      if (ask) ask(report);
      else reports.push(report);
    });
  }).listen(path);
  await once(server, 'listening');
  const vanish = (): void => {
    socket?.destroy();
    server.close();
  };
  t.after(() => {
    vanish();
    rmSync(directory, { recursive: true });
  });
  return {
    path,
    next: async () => reports.shift() ?? new Promise((resolve) => asking.push(resolve)),
    answer: (line) => socket?.write(`${line}\n`),
    vanish,
  };
}

/** Whether it is settled by the time that everything which was already on its way has come. */
async function isWaiting(promise: Promise<void>): Promise<boolean> {
  const turn = (async () => {
    for (let turns = 0; turns < 20; turns += 1) await new Promise((resolve) => setImmediate(resolve));
    return true;
  })();
  return Promise.race([turn, promise.then(() => false)]);
}

test('without the variable a point is one call that gives back the same promise', async () => {
  const point = pointsFrom({ NODE_ENV: 'production' });
  assert.equal(point('edge:claimed'), point('edge:committed'));
  await point('edge:claimed');
  await pointsFrom({ TWICEPROOF_POINTS: '' })('edge:claimed');
});

test('an armed point says where it is, how often it was there, and waits for its own answer', async (t) => {
  const lab = await supervisor(t);
  const point = pointsFrom({ TWICEPROOF_POINTS: lab.path });
  const { pid } = process;
  const first = point('edge:claimed');
  const second = point('edge:claimed');
  const other = point('edge:committed');
  const reports = [await lab.next(), await lab.next(), await lab.next()];
  assert.deepEqual(reports, [
    { id: 1, name: 'edge:claimed', hit: 1, pid },
    { id: 2, name: 'edge:claimed', hit: 2, pid },
    { id: 3, name: 'edge:committed', hit: 1, pid },
  ]);
  lab.answer(3);
  await other;
  lab.answer("what is not an id is nobody's answer");
  lab.answer(2);
  await second;
  assert.ok(await isWaiting(first), 'the others were answered, this one was not');
  lab.answer(1);
  await first;
});

test('points let go when nobody listens on the socket', async () => {
  const point = pointsFrom({ TWICEPROOF_POINTS: join(tmpdir(), 'tp-nobody-listens-here') });
  await Promise.all([point('edge:claimed'), point('edge:committed')]);
  await point('edge:claimed');
});

test('points let go when the supervisor vanishes, those that wait and those that come', async (t) => {
  const lab = await supervisor(t);
  const point = pointsFrom({ TWICEPROOF_POINTS: lab.path });
  const waiting = [point('edge:claimed'), point('edge:committed')];
  await lab.next();
  lab.vanish();
  await Promise.all(waiting);
  await point('edge:claimed');
});

test('production mode refuses the variable', () => {
  assert.throws(() => pointsFrom({ NODE_ENV: 'production', TWICEPROOF_POINTS: '/anywhere' }), {
    name: 'TwiceproofError',
    code: 'TP_POINTS_IN_PRODUCTION',
    retryable: false,
  });
});

function run(t: TestContext, body: string, env: NodeJS.ProcessEnv): { output(): string; ended: Promise<unknown[]> } {
  const source = `import { point } from ${JSON.stringify(join(import.meta.dirname, 'points.ts'))};\n${body}`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', source], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.after(() => child.kill('SIGKILL'));
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => (output += text));
  }
  return { output: () => output, ended: once(child, 'close') };
}

test('a process: refused in production, kept alive by what waits at a point and not by the socket', async (t) => {
  const lab = await supervisor(t);
  const production = run(t, 'console.log("it runs")', { NODE_ENV: 'production', TWICEPROOF_POINTS: lab.path });
  assert.deepEqual(await production.ended, [1, null]);
  assert.match(production.output(), /TP_POINTS_IN_PRODUCTION/);
  assert.doesNotMatch(production.output(), /it runs/);

  const armed = run(t, 'await point("edge:claimed"); console.log("it went on");', {
    NODE_ENV: '',
    TWICEPROOF_POINTS: lab.path,
  });
  const { id, pid } = await lab.next();
  assert.notEqual(pid, process.pid);
  assert.doesNotMatch(armed.output(), /it went on/);
  lab.answer(id);
  assert.deepEqual(await armed.ended, [0, null], armed.output());
  assert.equal(armed.output(), 'it went on\n');
});
