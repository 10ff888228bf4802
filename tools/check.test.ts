import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { chooseSteps, runSteps } from './check/run.ts';
import type { Step } from './check/run.ts';

const root = join(import.meta.dirname, '..');

function step(name: string, program: string): Step {
  return { name, what: '', command: ['--eval', program] };
}

test('every step runs, also after one has failed, and the failing one keeps its output', async () => {
  const steps = [
    step('red', `console.log('said'); console.error('complained'); process.exitCode = 3;`),
    step('killed', `process.kill(process.pid, 'SIGKILL');`),
    step('green', `console.log('fine');`),
  ];
  const ended: string[] = [];
  const results = await runSteps(steps, { cwd: root, atOnce: 1, onEnd: ({ step: { name } }) => ended.push(name) });
  assert.deepEqual(ended, ['red', 'killed', 'green']);
  assert.deepEqual(
    results.map(({ ok }) => ok),
    [false, false, true],
  );
  assert.match(results[0]?.output ?? '', /said[^]*complained/);
  assert.match(results[1]?.output ?? '', /ended by SIGKILL/);
});

test('named steps only, in the order of the table; an unknown name is told apart', () => {
  const steps = [step('format', ''), step('lint', ''), step('types', '')];
  const names = (chosen: Step[]) => chosen.map(({ name }) => name);
  assert.deepEqual(names(chooseSteps(steps, []).chosen), ['format', 'lint', 'types']);
  assert.deepEqual(names(chooseSteps(steps, ['types', 'format']).chosen), ['format', 'types']);
  assert.deepEqual(chooseSteps(steps, ['types', 'typos']).unknown, ['typos']);
});

test('the command refuses an unknown step with exit code 2 and names those that exist', () => {
  const run = spawnSync(process.execPath, ['tools/check.ts', 'typos'], { cwd: root, encoding: 'utf8' });
  assert.equal(run.status, 2);
  assert.match(run.stderr, /There is no step "typos"[^]*format[^]*lint[^]*types[^]*tidy/);
});
