import { spawn, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { copyTree } from './copy.ts';
import type { Copy } from './copy.ts';
import { judge } from './judge.ts';
import type { Verdict } from './judge.ts';
import type { Plant } from './plant.ts';
import type { Line } from './reporter.ts';

const reporter = join(import.meta.dirname, 'reporter.ts');
/** A bug may well make a test wait for ever. */
const defaultLimitMs = 300_000;

/** Copies the tree, plants the bug, runs the test file, and says whether it was noticed. Leaves nothing behind. */
export async function tryPlant(
  root: string,
  plant: Plant,
  options: { signal?: AbortSignal; limitMs?: number } = {},
): Promise<Verdict> {
  const copy = copyTree(root);
  const removeAtOnce = () => rmSync(copy.base, { recursive: true, force: true });
  process.once('exit', removeAtOnce);
  try {
    const applied = spawnSync('git', ['apply', '-'], { cwd: copy.tree, input: plant.patch, encoding: 'utf8' });
    if (applied.status !== 0) return { ok: false, reason: 'the patch does not apply', details: applied.stderr };
    const limit = AbortSignal.timeout(options.limitMs ?? defaultLimitMs);
    const lines = await runTests(
      copy,
      plant.test,
      AbortSignal.any([limit, ...(options.signal ? [options.signal] : [])]),
    );
    if (options.signal?.aborted) return { ok: false, reason: 'interrupted', details: '' };
    if (limit.aborted) return { ok: false, reason: 'the test file did not end in time', details: '' };
    return judge(plant, lines);
  } finally {
    await removeCopy(copy);
    process.off('exit', removeAtOnce);
  }
}

/** As `npm test` runs one file: it starts the servers that it needs by itself. */
async function runTests(copy: Copy, file: string, signal: AbortSignal): Promise<Line[]> {
  const env: NodeJS.ProcessEnv = { ...process.env, TMPDIR: copy.temporary };
  // It would tell the run below that it is a part of the one around us, when a test calls this.
  delete env['NODE_TEST_CONTEXT'];
  const args = ['--conditions=twiceproof-source', '--test', `--test-reporter=${reporter}`, file];
  // In a group of its own, so that an end reaches the test's own children as well.
  const child = spawn(process.execPath, args, {
    cwd: copy.tree,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  let complaints = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (output += chunk));
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => (complaints += chunk));
  const ended = new Promise<void>((resolve, reject) => child.once('close', () => resolve()).once('error', reject));
  const end = () => endGroup(child.pid, ended);
  if (signal.aborted) end();
  signal.addEventListener('abort', end, { once: true });
  await ended;
  signal.removeEventListener('abort', end);
  const lines = output.split('\n').filter((line) => line.startsWith('{'));
  return [...lines.map((line) => JSON.parse(line) as Line), { type: 'stderr', message: complaints }];
}

/**
 * A test that was ended has left its servers to their reapers (infra/reaper.ts), each of which needs the
 * directory of its run, and removes it when the servers are gone: until then the copy has to stay.
 */
async function removeCopy({ base, tree }: Copy): Promise<void> {
  const runs = join(tree, '.twiceproof/runs');
  const deadline = performance.now() + 15_000;
  while (existsSync(runs) && readdirSync(runs).length > 0 && performance.now() < deadline) await sleep(50);
  await rm(base, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
}

function endGroup(pid: number | undefined, ended: Promise<void>): void {
  if (pid === undefined) return;
  const kill = (name: NodeJS.Signals) => {
    try {
      process.kill(-pid, name);
    } catch {
      // It has ended by itself in the meantime.
    }
  };
  kill('SIGTERM');
  const timer = setTimeout(() => kill('SIGKILL'), 5_000);
  ended.finally(() => clearTimeout(timer)).catch(() => {});
}
