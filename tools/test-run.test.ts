import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { runFiles, type FileResult } from './test-run.ts';
import { roomOf, summary } from './test-summary.ts';

const root = mkdtempSync(join(tmpdir(), 'twiceproof-test-run-'));
after(() => rmSync(root, { recursive: true }));

/** The runner runs inside a test here, and Node would take the inner run for a part of the outer one. */
delete process.env['NODE_TEST_CONTEXT'];

async function runText(body: string, fileTimeoutMs = 60_000): Promise<FileResult> {
  const file = 'demo.test.mts';
  writeFileSync(join(root, file), `import { test, describe } from 'node:test';\n${body}`);
  const { signal } = new AbortController();
  const options = { root, concurrency: 1, env: {}, progress: () => {}, signal, fileTimeoutMs };
  const [result] = await runFiles([file], options);
  assert.ok(result);
  return result;
}

test('passing tests are counted, in suites too, and suites are not', async () => {
  const { passed, failures } = await runText(
    "test('a', () => {}); describe('s', () => { test('b', () => {}); test('c', () => {}); });",
  );
  assert.deepEqual({ passed, failures }, { passed: 3, failures: [] });
});

test('a failing test is told once, with its reason, beside those that pass', async () => {
  const { passed, failures } = await runText(
    "describe('s', () => { test('bad', () => { throw new Error('because'); }); test('good', () => {}); });",
  );
  assert.equal(passed, 1);
  assert.equal(failures.length, 1);
  assert.equal(failures[0]?.name, 'bad');
  assert.match(failures[0]?.reason ?? '', /because/);
});

test('a file that cannot be loaded, dies, leaves early, or has no test is a failure', async () => {
  const cases = {
    'this is no program': /./,
    "test('a', () => { process.kill(process.pid, 'SIGKILL'); });": /./,
    "test('a', () => {}); test('b', async () => { process.exit(0); });": /ended before its tests did/,
    '': /no test/,
    "test('a', () => {}); setTimeout(() => { throw new Error('late'); }, 50);": /late/,
  };
  for (const [body, reason] of Object.entries(cases)) {
    const { failures } = await runText(body);
    assert.ok(failures.length > 0, `green: ${body}`);
    assert.match(failures.map((failure) => failure.reason).join('\n'), reason, body);
  }
});

test('a file whose process does not end is ended, and a failure', { timeout: 30_000 }, async () => {
  for (const body of [
    "test('a', () => {}); setInterval(() => {}, 1_000);",
    "test('a', () => { throw new Error('no'); }); setInterval(() => {}, 1_000);",
    "test('a', async () => { setInterval(() => {}, 1_000); await new Promise(() => {}); });",
  ]) {
    const { failures } = await runText(body, 2_000);
    assert.match(failures.map((failure) => failure.reason).join('\n'), /did not end within 2 s/, body);
  }
});

test('what says that it did not run is not counted as passed, and its reason is kept', async () => {
  const { passed, notRun } = await runText(
    "test('later', { skip: 'needs a moon' }, () => {}); test('now', () => {}); test('b (does not apply: no sun)', () => {});",
  );
  assert.deepEqual(
    { passed, notRun },
    {
      passed: 1,
      notRun: [
        { name: 'later', why: 'needs a moon' },
        { name: 'b (does not apply: no sun)', why: 'no sun' },
      ],
    },
  );
});

test('the summary fails when a test or a step failed, and names what was not run', () => {
  const good: FileResult = {
    file: 'infra/a.test.ts',
    passed: 2,
    failures: [],
    notRun: [{ name: 'x', why: 'no moon' }],
    ms: 1_000,
  };
  const bad: FileResult = { ...good, file: 'tools/b.test.ts', failures: [{ name: 'y', reason: '' }] };
  const step = { name: 'check', passed: true, ms: 500 };
  const green = summary({ results: [good], steps: [step], notRun: ['infra/c.chaos.deep.test.ts'], deep: false });
  assert.equal(green.data.ok, true);
  for (const line of [
    /^ {2}check +passed +0\.5 s$/m,
    /^ {2}infra +2 tests in 1 file +1\.0 s$/m,
    /^ {2}infra\/a\.test\.ts: x: no moon$/m,
    /1 file of the other tier and the planted bugs/,
    /^3 passed, 0 failed$/m,
  ]) {
    assert.match(green.text, line);
  }
  const red = summary({ results: [good, bad], steps: [step], notRun: [], deep: false });
  assert.equal(red.data.ok, false);
  assert.match(red.text, /FAILED: tools\/b\.test\.ts/);
  assert.equal(
    summary({ results: [good], steps: [{ ...step, passed: false }], notRun: [], deep: false }).data.ok,
    false,
  );
});

test('the command fails when a test fails, and passes when none does', () => {
  const command = (file: string) =>
    spawnSync(process.execPath, ['tools/test.ts', file], { cwd: join(import.meta.dirname, '..'), encoding: 'utf8' });
  const red = command('tools/fixtures/red.ts');
  assert.equal(red.status, 1, red.stdout);
  assert.match(red.stdout, /^FAILED: tools\/fixtures\/red\.ts$/m);
  assert.match(red.stdout, /^1 passed, 1 failed$/m);
  const green = command('infra/ports.test.ts');
  assert.equal(green.status, 0, green.stdout);
  assert.equal(command('no/such/file').status, 2);
});

test('a file belongs to the room it stands in', () => {
  assert.equal(roomOf('packages/twiceproof/src/transports/x.test.ts'), 'twiceproof/transports');
  assert.equal(roomOf('packages/twiceproof/src/x.test.ts'), 'twiceproof');
  assert.equal(roomOf('packages/program/src/x.test.ts'), 'packages/program');
  assert.equal(roomOf('lab/recon/deep/x.test.ts'), 'lab/recon');
  assert.equal(roomOf('infra/x.test.ts'), 'infra');
});
