import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { isStillRunning, processInfo, type ProcessInfo } from '@twiceproof/infra/processes';
import { listenForPoints } from './points-socket.ts';
import { supervise, type Lab } from './supervise.ts';
import type { ProgramCall } from './process.ts';

const directory = mkdtempSync(join(tmpdir(), 'tp-fixture-'));
after(() => rmSync(directory, { recursive: true }));
const pointsFile = join(import.meta.dirname, '../../packages/twiceproof/src/points.ts');

/** Prints that it is ready, then takes so many steps with a point in each, and writes them down. */
const worker = join(directory, 'worker.mjs');
writeFileSync(
  worker,
  `import { appendFileSync } from 'node:fs';
import { point } from ${JSON.stringify(pointsFile)};
const [log, steps] = process.argv.slice(2);
console.log(JSON.stringify({ ready: true, pid: process.pid, points: process.env.TWICEPROOF_POINTS }));
for (let step = 1; step <= Number(steps); step += 1) {
  await point('work:begun');
  appendFileSync(log, step + ' ');
  await point('work:written');
}
console.error('all done');
`,
);

/** A program that owns a lab, to be killed. */
const owner = join(directory, 'owner.mjs');
writeFileSync(
  owner,
  `import { supervise } from ${JSON.stringify(join(import.meta.dirname, 'supervise.ts'))};
const lab = await supervise();
const pids = [];
for (const action of ['hold', 'stop']) {
  const trap = lab.at({ role: action, point: 'work:written' }, action);
  pids.push((await lab.start({ role: action, command: process.execPath, args: [${JSON.stringify(worker)}, process.argv[2], '1000'] })).pid);
  await trap.fired();
}
console.log(JSON.stringify({ pids }));
setInterval(() => {}, 1000);
`,
);

let logs = 0;
function work(role: string, steps: number, log = join(directory, `log-${(logs += 1)}`)): ProgramCall & { log: string } {
  return { role, command: process.execPath, args: [worker, log, String(steps)], log };
}

function stepsIn({ log }: { log: string }): string {
  return existsSync(log) ? readFileSync(log, 'utf8') : '';
}

async function open(t: TestContext): Promise<Lab> {
  const lab = await supervise();
  t.after(async () => lab.close());
  return lab;
}

async function eventually(condition: () => boolean, what: string): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, `within 10 s: ${what}`);
    await delay(10);
  }
}

function isFrozen(pid: number): boolean {
  return execFileSync('ps', ['-o', 'state=', '-p', String(pid)], { encoding: 'utf8' }).startsWith('T');
}

function known(pid: number): ProcessInfo {
  const info = processInfo(pid);
  assert.ok(info, `process ${pid} runs`);
  return info;
}

test('a process whose points nobody wants goes through; every hit is recorded', async (t) => {
  const lab = await open(t);
  const call = work('worker-1', 2);
  const process = await lab.start(call);
  const ready = await process.firstJsonLine<{ ready: boolean; pid: number }>();
  assert.deepEqual([ready.ready, ready.pid], [true, process.pid]);
  assert.deepEqual(await process.exited, { code: 0, signal: null });
  const { pid } = process;
  assert.deepEqual(lab.hits, [
    { role: 'worker-1', point: 'work:begun', hit: 1, pid },
    { role: 'worker-1', point: 'work:written', hit: 1, pid },
    { role: 'worker-1', point: 'work:begun', hit: 2, pid },
    { role: 'worker-1', point: 'work:written', hit: 2, pid },
  ]);
  assert.match(process.describe(), /worker-1 \(process \d+\) has ended \(exit code 0\)\n--- stderr\nall done/);
});

test('kill at the n-th hit: it is dead there, and its successor in the role goes through', async (t) => {
  const lab = await open(t);
  const call = work('worker-1', 5);
  const trap = lab.at({ role: 'worker-1', point: 'work:begun', hit: 3 }, 'kill');
  const [first, bystander] = [await lab.start(call), await lab.start(work('worker-2', 5))];
  assert.deepEqual(await trap.fired(), { role: 'worker-1', point: 'work:begun', hit: 3, pid: first.pid });
  assert.deepEqual(await first.exited, { code: null, signal: 'SIGKILL' });
  assert.equal(stepsIn(call), '1 2 ');
  assert.deepEqual(await bystander.exited, { code: 0, signal: null }, 'the other role had no trap');
  const second = await lab.start(call);
  assert.deepEqual(await second.exited, { code: 0, signal: null }, 'a trap fires once');
  assert.equal(stepsIn(call), '1 2 1 2 3 4 5 ');
  const reached = await lab.reached({ role: 'worker-1', point: 'work:begun', hit: 1 });
  assert.equal(reached.pid, second.pid, 'what its predecessor has reached does not count');
});

test('several are started at once, each in a role of its own', async (t) => {
  const lab = await open(t);
  const roles = ['worker-1', 'worker-2', 'worker-3'];
  const started = await Promise.all(roles.map(async (role) => lab.start(work(role, 1))));
  await assert.rejects(Promise.all([lab.start(work('twin', 1)), lab.start(work('twin', 1))]), /twin runs already/);
  for (const { exited } of started) assert.deepEqual(await exited, { code: 0, signal: null });
  for (const { role, pid } of started) assert.equal((await lab.reached({ role, point: 'work:written' })).pid, pid);
});

test('hold and release; a role runs once at a time; a trap that was taken away does not fire', async (t) => {
  const lab = await open(t);
  const call = work('worker-1', 3);
  const trap = lab.at({ point: 'work:begun', hit: 2 }, 'hold');
  const never = lab.at({ point: 'work:written', hit: 3 }, 'kill');
  const process = await lab.start(call);
  await trap.fired();
  assert.equal(stepsIn(call), '1 ');
  await assert.rejects(lab.start(call), /worker-1 runs already/);
  never.release();
  trap.release();
  assert.equal((await lab.reached({ role: 'worker-1', point: 'work:written', hit: 3 })).hit, 3);
  assert.deepEqual(await process.exited, { code: 0, signal: null });
  assert.equal((await lab.reached({ point: 'work:begun' })).hit, 1, 'what was reached long ago is found too');
});

test('stop at a point, then continue: frozen there, and goes on from there', async (t) => {
  const lab = await open(t);
  const call = work('worker-1', 3);
  const trap = lab.at({ role: 'worker-1', point: 'work:written', hit: 2 }, 'stop');
  const process = await lab.start(call);
  await trap.fired();
  await eventually(() => isFrozen(process.pid), 'it is frozen');
  assert.equal(stepsIn(call), '1 2 ');
  process.thaw();
  assert.deepEqual(await process.exited, { code: 0, signal: null });
  assert.equal(stepsIn(call), '1 2 3 ');
});

test('freeze, thaw, signal and kill from outside', async (t) => {
  const lab = await open(t);
  const trap = lab.at({ point: 'work:begun' }, 'hold');
  const process = await lab.start(work('worker-1', 1));
  await trap.fired();
  process.freeze();
  await eventually(() => isFrozen(process.pid), 'it is frozen');
  process.thaw();
  await eventually(() => !isFrozen(process.pid), 'it is not');
  assert.ok(process.running);
  process.freeze();
  assert.deepEqual(await process.kill(), { code: null, signal: 'SIGKILL' }, 'a frozen one dies too');
  assert.equal(process.running, false);
});

test('a wait in vain tells what was hit, and what the processes said', async (t) => {
  const lab = await open(t);
  const process = await lab.start(work('worker-1', 1));
  await process.exited;
  await assert.rejects(lab.reached({ role: 'worker-1', point: 'work:paid', hit: 2 }, 20), (error: Error) => {
    assert.match(error.message, /within 0.02 s: nothing was at work:paid for the 2\. time in worker-1/);
    assert.match(error.message, /hits: work:begun in worker-1 1, work:written in worker-1 1\n/);
    assert.match(error.message, /has ended \(exit code 0\)\n--- stderr\nall done/);
    return true;
  });
  await assert.rejects(lab.at({ point: 'work:paid' }, 'kill').fired(20), /nothing was at work:paid/);
  const silent = await lab.start({
    role: 'silent',
    command: globalThis.process.execPath,
    args: ['-e', 'process.exit(4)'],
  });
  await assert.rejects(silent.firstJsonLine(), /it ended before its first line: silent .*exit code 4/);
  await assert.rejects(lab.start({ role: 'none', command: '/no/such/program' }), /ENOENT/);
});

test('what a process prints is waited for, on either stream, and told if it does not come', async (t) => {
  const lab = await open(t);
  const trap = lab.at({ role: 'a', point: 'work:written' }, 'hold');
  const process = await lab.start(work('a', 1));
  await process.printed(/"ready":true/);
  await assert.rejects(
    process.printed(/all done/, 50),
    /within 0.05 s: .*all done.* did not come from a .*"ready":true/s,
  );
  const printed = process.printed(/all done/);
  trap.release();
  await printed;
});

test('a shell around the program is found out instead of killed in its place, and ends with the lab', async (t) => {
  const lab = await open(t);
  const { command, args } = work('worker-1', 1000);
  const shell = ['-c', `"${command}" ${args?.join(' ')}; true`];
  const kill = lab.at({ point: 'work:begun', hit: 2 }, 'kill');
  const hold = lab.at({ point: 'work:begun', hit: 3 }, 'hold');
  await lab.start({ role: 'worker-1', command: '/bin/sh', args: shell });
  await assert.rejects(kill.fired(), /start the program itself, not a shell or npm around it/);
  const inner = known((await hold.fired()).pid);
  await lab.close();
  assert.equal(isStillRunning(inner), false);
});

test('close ends everything: what is held, what is frozen, and its own directory', async () => {
  const lab = await supervise();
  const traps = (['hold', 'stop'] as const).map((action) => lab.at({ role: action, point: 'work:begun' }, action));
  const processes = [await lab.start(work('hold', 1)), await lab.start(work('stop', 1))];
  const { points } = await processes[0]!.firstJsonLine<{ points: string }>();
  await Promise.all(traps.map(async (trap) => trap.fired()));
  await lab.close();
  for (const { exited } of processes) assert.deepEqual(await exited, { code: null, signal: 'SIGKILL' });
  assert.equal(existsSync(dirname(points)), false);
});

test('SIGKILL of the process that owns a lab leaves no child, neither a held nor a frozen one', async (t) => {
  const lab = await open(t);
  const log = join(directory, 'orphans');
  const killed = await lab.start({ role: 'owner', command: process.execPath, args: [owner, log] });
  const { pids } = await killed.firstJsonLine<{ pids: number[] }>();
  const children = pids.map(known);
  assert.equal(children.length, 2);
  await killed.kill();
  await eventually(() => !children.some(isStillRunning), 'no child is left');
});

test('a process that dies with answers unread resets its socket, and the next one is served', async () => {
  const path = join(directory, 'reset');
  let onReport = (): void => {};
  const socket = await listenForPoints(path, (_, answer) => {
    answer();
    onReport();
  });
  for (const name of ['work:begun', 'work:written']) {
    const reported = new Promise<void>((resolve) => (onReport = resolve));
    const dying = connect(path).pause();
    dying.write(`${JSON.stringify({ id: 1, name, hit: 1, pid: 1 })}\n`);
    await reported;
    dying.destroy();
  }
  await socket.close();
});

test('a process whose supervisor vanished while it waited at a point goes on', async (t) => {
  const lab = await open(t);
  const path = join(directory, 'vanishing');
  const reached = Promise.withResolvers<number>();
  const socket = await listenForPoints(path, ({ hit, pid }, answer) => {
    if (hit === 1) answer();
    else reached.resolve(pid);
  });
  const call = work('worker-1', 3);
  const other = [`TWICEPROOF_POINTS=${path}`, call.command, ...(call.args ?? [])];
  const process = await lab.start({ ...call, command: '/usr/bin/env', args: other });
  assert.equal(await reached.promise, process.pid);
  assert.equal(stepsIn(call), '1 ');
  await socket.close();
  assert.deepEqual(await process.exited, { code: 0, signal: null });
  assert.equal(stepsIn(call), '1 2 3 ');
});
