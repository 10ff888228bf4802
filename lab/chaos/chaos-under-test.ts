/** `npm run chaos` as a process, run to its end. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Report } from './system/report.ts';

interface Cleanup {
  after(undo: () => unknown): void;
}

/** Fails with all that it said unless it ends with 0. What it leaves goes with the test. */
export async function runChaos(t: Cleanup, args: readonly string[]): Promise<{ report: Report; out: string }> {
  const directory = mkdtempSync(join(tmpdir(), 'twiceproof-chaos-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const out = join(directory, 'run');
  const script = join(import.meta.dirname, 'main.ts');
  const child = spawn(process.execPath, [script, ...args, '--no-shrink', `--out=${out}`, '--json'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.after(() => child.kill('SIGKILL'));
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  let last: { report?: Report } = {};
  createInterface({ input: child.stdout }).on('line', (line) => {
    last = JSON.parse(line) as typeof last;
  });
  const [code] = (await once(child, 'close')) as [number | null];
  assert.equal(code, 0, `${said}\n${JSON.stringify(last, undefined, 2)}`);
  return { report: last.report!, out };
}
