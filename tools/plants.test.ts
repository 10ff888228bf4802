import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { isCalled, namesTest, parsePlant } from './plants/plant.ts';
import type { Plant } from './plants/plant.ts';
import { tryPlant } from './plants/run.ts';

/** A repository of one workspace, which its test imports by name, as ours do. */
const files: Record<string, string> = {
  'package.json': '{ "private": true, "type": "module", "workspaces": ["packages/*"] }',
  '.gitignore': 'node_modules/\n',
  'packages/sum/package.json': '{ "name": "@demo/sum", "type": "module", "exports": "./sum.ts" }',
  'packages/sum/sum.ts': 'export const add = (a: number, b: number) => a + b;\nexport const zero = 0;\n',
  'sum.test.ts': `import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { add, zero } from '@demo/sum';
describe('sums', () => {
  test('adds', () => assert.equal(add(1, 2), 3));
  test('starts at zero', () => assert.equal(zero, 0));
});
test('knows its name', () => assert.equal(add.name, 'add'));
test('ends', async () => { if (zero > 5) await new Promise((resolve) => setTimeout(resolve, 60_000)); });
`,
};

let temporary: string;
let root: string;
const ourTemporary = process.env['TMPDIR'];

before(() => {
  temporary = mkdtempSync(join(tmpdir(), 'twiceproof-plants-test-'));
  // The copies go there too, so that what is left behind is seen, and not what others do at the same time.
  process.env['TMPDIR'] = temporary;
  root = join(temporary, 'repository');
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  mkdirSync(join(root, 'node_modules/@demo'), { recursive: true });
  symlinkSync('../../packages/sum', join(root, 'node_modules/@demo/sum'));
  execFileSync('git', ['init', '--quiet'], { cwd: root });
});

afterEach(() => {
  assert.deepEqual(readdirSync(temporary), ['repository'], 'no copy is left behind');
});

after(() => {
  if (ourTemporary === undefined) delete process.env['TMPDIR'];
  else process.env['TMPDIR'] = ourTemporary;
  rmSync(temporary, { recursive: true, force: true });
});

const addLine = 'export const add = (a: number, b: number) => a + b;';
const zeroLine = 'export const zero = 0;';

/** A plant that replaces a line of sum.ts, in the form that `git diff` gives it. */
function plantText(oldLine: string, newLine: string, fails: string[]): string {
  const header = ['A bug.', 'Test: sum.test.ts', ...fails.map((name) => `Fails: ${name}`), ''];
  const diff = ['--- a/packages/sum/sum.ts', '+++ b/packages/sum/sum.ts', '@@ -1,2 +1,2 @@'];
  const change = [`-${oldLine}`, `+${newLine}`];
  const hunk = oldLine === zeroLine ? [` ${addLine}`, ...change] : [...change, ` ${zeroLine}`];
  return [...header, ...diff, ...hunk, ''].join('\n');
}

function plantReplacing(...args: Parameters<typeof plantText>): Plant {
  const plant = parsePlant('01-bug', plantText(...args));
  assert.ok(!('problems' in plant), JSON.stringify(plant));
  return plant;
}

const plantInAdd = (newLine: string, fails: string[]) => plantReplacing(addLine, newLine, fails);

describe('trying a plant', () => {
  test('a bug that the named test, and only that, notices', async () => {
    const plant = plantInAdd('export const add = (a: number, b: number) => a - b;', ['adds']);
    assert.deepEqual(await tryPlant(root, plant), { ok: true, reason: 'noticed by 1 of 4 tests', details: '' });
    assert.equal(readFileSync(join(root, 'packages/sum/sum.ts'), 'utf8'), files['packages/sum/sum.ts']);
  });

  test('a patch that does not apply', async () => {
    const plant = plantReplacing('export const subtract = 1;', 'export const subtract = 2;', ['adds']);
    const verdict = await tryPlant(root, plant);
    assert.equal(verdict.ok, false);
    assert.match(verdict.reason, /does not apply/);
    assert.match(verdict.details, /sum\.ts/);
  });

  test('a bug that nobody notices', async () => {
    const verdict = await tryPlant(root, plantInAdd('export const add = (a: number, b: number) => b + a;', ['adds']));
    assert.equal(verdict.ok, false);
    assert.match(verdict.reason, /nobody noticed: all 4 tests of sum\.test\.ts stay green/);
  });

  test('a bug that turns another test red as well', async () => {
    const newLine = 'const minus = (a: number, b: number) => a - b; export { minus as add };';
    const verdict = await tryPlant(root, plantInAdd(newLine, ['adds']));
    assert.equal(verdict.ok, false);
    assert.match(verdict.reason, /tests failed that the plant does not name/);
    assert.match(verdict.details, /red: knows its name/);
  });

  test('a named test that stays green beside one that does not', async () => {
    const newLine = 'export const add = (a: number, b: number) => a - b;';
    const verdict = await tryPlant(root, plantInAdd(newLine, ['adds', 'sums > starts at zero']));
    assert.equal(verdict.ok, false);
    assert.match(verdict.reason, /did not turn red: sums > starts at zero/);
  });

  test('a syntax error is a crash, even if every test was named', async () => {
    const verdict = await tryPlant(root, plantInAdd('export const add = (;', ['/./']));
    assert.equal(verdict.ok, false);
    assert.match(verdict.reason, /crashed before its tests had ended/);
    assert.match(verdict.details, /SyntaxError|ERR_INVALID_TYPESCRIPT_SYNTAX/);
  });

  test('a process that ends in the middle of its tests is a crash, even if it says that all is well', async () => {
    const newLine = 'export const add = (a: number, b: number) => process.exit(0);';
    const verdict = await tryPlant(root, plantInAdd(newLine, ['/./']));
    assert.equal(verdict.ok, false);
    assert.match(verdict.reason, /crashed before its tests had ended/);
  });

  test('a test that never ends is ended', async () => {
    const plant = plantReplacing(zeroLine, 'export const zero = 9;', ['/./']);
    const verdict = await tryPlant(root, plant, { limitMs: 1_500 });
    assert.deepEqual(verdict, { ok: false, reason: 'the test file did not end in time', details: '' });
  });

  test('an interruption ends it at once', async () => {
    const plant = plantReplacing(zeroLine, 'export const zero = 9;', ['/./']);
    const verdict = await tryPlant(root, plant, { signal: AbortSignal.timeout(500) });
    assert.deepEqual(verdict, { ok: false, reason: 'interrupted', details: '' });
  });
});

describe('reading a plant', () => {
  test('header and diff are told apart', () => {
    const text = plantText(zeroLine, 'export const zero = 9;', ['a', '/b+/']);
    const plant = parsePlant('02-zero', text);
    assert.ok(!('problems' in plant));
    assert.equal(plant.what, 'A bug.');
    assert.equal(plant.test, 'sum.test.ts');
    assert.deepEqual(plant.fails, ['a', '/b+/']);
    assert.match(plant.patch, /^--- a\/packages/);
  });

  test('everything that is missing is said at once', () => {
    assert.deepEqual(parsePlant('03', 'Test: a.test.ts\nTest: b.test.ts\nFails:\n'), {
      problems: [
        'needs one line "Test: path/of/file.test.ts"',
        'needs a line "Fails: name of the test"',
        'needs a sentence that says what the bug is',
        'has no diff',
      ],
    });
  });

  test('a broken pattern, and a patch that changes the test', () => {
    const text = plantText('a', 'b', ['/(/']).replaceAll('packages/sum/sum.ts', 'sum.test.ts');
    assert.deepEqual(parsePlant('04', text), {
      problems: ['changes a test, not the code', '"Fails: /(/" is no regular expression'],
    });
  });

  test('a test is named by its own name, with its suites, or by a pattern', () => {
    assert.ok(namesTest('adds', ['sums', 'adds']));
    assert.ok(namesTest('sums > adds', ['sums', 'adds']));
    assert.ok(namesTest('/^sums > a/', ['sums', 'adds']));
    assert.ok(!namesTest('add', ['sums', 'adds']));
    assert.ok(!namesTest('sums', ['sums', 'adds']));
  });

  test('a plant is called by its number, its name, or both', () => {
    for (const asked of ['3', '03', '03-lost-update', 'lost-update'])
      assert.ok(isCalled('03-lost-update', asked), asked);
    for (const asked of ['0', '30', 'lost', '']) assert.ok(!isCalled('03-lost-update', asked), asked);
  });
});

describe('npm run plants', () => {
  const command = (...args: string[]) =>
    spawnSync(process.execPath, ['tools/plants.ts', ...args], { cwd: root, encoding: 'utf8' });

  before(() => {
    for (const path of ['plants.ts', 'plants', 'tidy/tree.ts']) {
      cpSync(join(import.meta.dirname, path), join(root, 'tools', path), { recursive: true });
    }
    mkdirSync(join(root, 'node_modules/@twiceproof'), { recursive: true });
    symlinkSync(join(import.meta.dirname, '../packages/program'), join(root, 'node_modules/@twiceproof/program'));
    mkdirSync(join(root, 'lab/plants'), { recursive: true });
    const plants = {
      '01-minus': plantText(addLine, 'export const add = (a: number, b: number) => a - b;', ['adds']),
      '02-harmless': plantText(addLine, 'export const add = (a: number, b: number) => b + a;', ['adds']),
      '03-endless': plantText(zeroLine, 'export const zero = 9;', ['ends']),
      '04-nonsense': 'Nothing in it.',
    };
    for (const [name, text] of Object.entries(plants)) writeFileSync(join(root, `lab/plants/${name}.patch`), text);
  });

  test('lists, helps, and refuses what it does not know', () => {
    assert.equal(command('--list').stdout, '01-minus: A bug.\n02-harmless: A bug.\n03-endless: A bug.\n04-nonsense\n');
    assert.match(command('--help').stdout, /^npm run plants -- /);
    assert.equal(command('05-missing').status, 2);
    assert.equal(command('--lsit').status, 2);
  });

  test('exits with 0 when the bug is noticed, and with 1 when one is not', () => {
    const good = command('minus');
    assert.equal(good.status, 0, good.stderr);
    assert.match(good.stdout, /^ok {6}01-minus {2}[\d.]+ s {2}noticed by 1 of 4 tests\nplants: 1 of 1 noticed\n$/);
    const mixed = command('--json', '1', '2', '4');
    assert.equal(mixed.status, 1);
    const lines = mixed.stdout.trim().split('\n');
    const verdicts = lines.map((line) => JSON.parse(line) as { plant: string; ok: boolean });
    assert.deepEqual(
      verdicts.map(({ plant, ok }) => `${plant} ${ok}`),
      ['01-minus true', '02-harmless false', '04-nonsense false'],
    );
  });

  test('Ctrl-C removes the copy and exits with 1', async () => {
    const child = spawn(process.execPath, ['tools/plants.ts', '3'], { cwd: root, stdio: 'ignore' });
    const exited = once(child, 'exit');
    while (readdirSync(temporary).length < 2) await setTimeout(10);
    await setTimeout(300);
    child.kill('SIGINT');
    assert.deepEqual(await exited, [1, null]);
  });
});

test('every plant of this repository can be tried: its patch applies, and its test is there', () => {
  const checkout = dirname(import.meta.dirname);
  const folder = join(checkout, 'lab/plants');
  const names = readdirSync(folder).filter((name) => name.endsWith('.patch'));
  assert.ok(names.length > 0);
  for (const name of names) {
    const plant = parsePlant(name, readFileSync(join(folder, name), 'utf8'));
    assert.ok(!('problems' in plant), name);
    assert.ok(existsSync(join(checkout, plant.test)), `${name}: ${plant.test}`);
    const { status, stderr } = spawnSync('git', ['apply', '--check', '-'], {
      cwd: checkout,
      input: plant.patch,
      encoding: 'utf8',
    });
    assert.equal(status, 0, `${name}: ${stderr}`);
  }
});
