import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { checkout } from '@twiceproof/infra/directories';
import { isStillRunning, processInfo } from '@twiceproof/infra/processes';
import { sweepDeadRuns } from '@twiceproof/infra/run';
import type { Status } from './status.ts';

/** Of its own, so that nothing is taken for what the person who runs the tests has started. */
const state = mkdtempSync(join(tmpdir(), 'twiceproof-start-'));
chmodSync(state, 0o755);
after(async () => {
  await sweepDeadRuns(state);
  rmSync(state, { recursive: true, force: true });
});

interface Ready {
  http: string[];
  directory: string;
  admin: string;
}

async function start(t: TestContext, args: readonly string[] = []) {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'main.ts'), '--brokers=1', '--json', ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, TWICEPROOF_STATE_DIR: state },
  });
  t.after(() => child.kill('SIGKILL'));
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  const exited = once(child, 'exit');
  const lines = createInterface({ input: child.stdout });
  const line = await Promise.race([once(lines, 'line'), exited]);
  assert.match(String(line[0]), /^\{"ready":true/, said);
  const ready = JSON.parse(String(line[0])) as Ready;
  const status = async (): Promise<Status> => (await fetch(`${ready.admin}/status`)).json() as Promise<Status>;
  return { child, exited, ready, status };
}

test('everything that is listed can be killed; it comes back, and the invariant holds; orders of others are told', async (t) => {
  const { child, exited, ready, status } = await start(t, ['--rate=30']);
  await eventually(async () => ((await status()).invariant?.charges ?? 0) > 0, 'orders are charged and judged');
  await orderByHand(ready);
  const victims = (await status()).processes;
  assert.deepEqual(
    victims.map(({ kind }) => kind),
    ['postgres', 'broker', 'orders', 'orders', 'relay', 'relay', 'payments', 'payments', 'load'],
  );
  for (const { pid } of victims) process.kill(pid, 'SIGKILL');
  const killedAt = new Date().toISOString();
  let last: Status | undefined;
  await eventually(async () => {
    last = await status();
    const { processes, invariant } = last;
    const isBack = processes.every(({ state: now, restarts }) => now === 'running' && restarts > 0);
    // A load that came back while the judge read had orders of which its list of ledgers did not know yet.
    const isToldOf = invariant?.others === 1;
    return isBack && isToldOf && invariant.verdict === 'clean' && invariant.checkedAt > killedAt;
  }, 'all are back, it is clean, and one order is of others').catch((error: unknown) => {
    throw new Error(JSON.stringify(last, undefined, 2), { cause: error });
  });
  const { invariant, processes } = last!;
  assert.deepEqual([invariant!.doubled, invariant!.lost], [0, 0]);
  const metrics = await (await fetch(`${ready.admin}/metrics`)).text();
  assert.match(metrics, /^system_restarts [1-9]/m);
  assert.match(metrics, /^system_other_orders 1$/m);
  child.kill('SIGINT');
  assert.deepEqual(await exited, [0, null]);
  await nothingIsLeft(processes, ready);
});

test('kill -9 of the owner leaves nothing', async (t) => {
  const { child, exited, ready, status } = await start(t);
  const { processes } = await status();
  child.kill('SIGKILL');
  await exited;
  await nothingIsLeft(processes, ready);
});

/** As somebody does who tries the doors by the README, at both; no load has this account. */
async function orderByHand({ http }: Ready): Promise<void> {
  const readme = readFileSync(join(checkout, 'README.md'), 'utf8');
  const [, line] = /```sh\n(curl [^]*?)```/.exec(readme)!;
  const answers = await Promise.all(
    http.map(async (door) => {
      const { stdout } = await promisify(execFile)('sh', ['-c', line!], { env: { ...process.env, DOOR: door } });
      assert.match(stdout, /^HTTP\/1\.1 201 /);
      return JSON.parse(stdout.split('\r\n\r\n')[1]!) as unknown;
    }),
  );
  assert.equal(answers.length, 2);
  assert.deepEqual(answers[0], answers[1]);
}

async function nothingIsLeft(processes: Status['processes'], { directory }: Ready): Promise<void> {
  const known = processes.flatMap(({ pid }) => processInfo(pid) ?? []);
  await eventually(
    async () => Promise.resolve(!existsSync(directory) && !known.some(isStillRunning)),
    'no process and no directory is left',
  );
}

async function eventually(condition: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + 120_000;
  while (!(await condition().catch(() => false))) {
    assert.ok(performance.now() < deadline, `within 120 s: ${what}`);
    await delay(200);
  }
}
