import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, afterEach, test } from 'node:test';
import { Refusal } from '@twiceproof/program';
import { cacheDirectory, cachedDirectory, isReachableForNobody, requireFreeSpace } from './directories.ts';

let directory = '';
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'twiceproof-directories-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

test('too little space is refused before anything is written, with both numbers and what to do', () => {
  const target = join(directory, 'not/yet/there');
  assert.throws(
    () => requireFreeSpace(target, 300e6, 'Postgres', () => 20e6),
    (error) =>
      error instanceof Refusal &&
      /No space left: Postgres needs 300 MB in .*not\/yet\/there, and 20 MB are free\.\n {2}Free some space/.test(
        error.message,
      ),
  );
  assert.equal(existsSync(target), false);
  requireFreeSpace(target, 300e6, 'Postgres', () => 300e6);
  requireFreeSpace(target, 1, 'this test');
  assert.throws(
    () => requireFreeSpace(target, Number.MAX_SAFE_INTEGER, 'this test'),
    Refusal,
    'the real number is read',
  );
});

test('what is cached is built once, and built again when its bytes have changed', async () => {
  let builds = 0;
  const build = async (target: string): Promise<void> => {
    builds += 1;
    mkdirSync(join(target, 'deep'));
    writeFileSync(join(target, 'deep/file'), 'good');
  };
  const path = await cachedDirectory('thing', build, directory);
  assert.equal(await cachedDirectory('thing', build, directory), path);
  assert.equal(builds, 1);

  writeFileSync(join(path, 'deep/file'), 'gooe');
  const rebuilt = await cachedDirectory('thing', build, directory);
  assert.equal(builds, 2, 'one changed byte is noticed');
  assert.equal(readFileSync(join(rebuilt, 'deep/file'), 'utf8'), 'good');

  rmSync(join(rebuilt, 'deep/file'));
  await cachedDirectory('thing', build, directory);
  assert.equal(builds, 3, 'a missing file is noticed');
});

test('a build that fails leaves nothing, and two at once both get the thing', async () => {
  const failing = async (target: string): Promise<void> => {
    writeFileSync(join(target, 'half'), '');
    throw new Error('no network');
  };
  await assert.rejects(cachedDirectory('thing', failing, directory), /no network/);
  assert.deepEqual(readdirSync(directory), []);

  const [dead, alive] = [join(directory, 'thing.deadbeef'), join(directory, 'thing.00000000')];
  for (const path of [dead, alive]) mkdirSync(path);
  const twoHoursAgo = new Date(Date.now() - 7_200_000);
  utimesSync(dead, twoHoursAgo, twoHoursAgo);
  const contents = async (): Promise<string> => {
    const build = async (target: string): Promise<void> => {
      await new Promise((resolve) => setImmediate(resolve));
      writeFileSync(join(target, 'file'), 'good');
    };
    const path = await cachedDirectory('thing', build, directory);
    // Others finish their own builds meanwhile, and must not take this one away.
    for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
    return readFileSync(join(path, 'file'), 'utf8');
  };
  assert.deepEqual(await Promise.all([contents(), contents(), contents()]), ['good', 'good', 'good']);
  assert.equal(existsSync(dead), false, 'a dead build went');
  assert.equal(existsSync(alive), true, 'one that may be under way did not');
});

test('the cache is where the environment says, and else in the user’s cache directory', () => {
  assert.equal(cacheDirectory({ TWICEPROOF_CACHE_DIR: '/x', XDG_CACHE_HOME: '/y' }), '/x');
  assert.equal(cacheDirectory({ XDG_CACHE_HOME: '/y' }), '/y/twiceproof');
  assert.match(cacheDirectory({}), /twiceproof$/);
});

test('a directory is reachable for nobody only if every directory above it is open to others', () => {
  chmodSync(directory, 0o755);
  const inner = join(directory, 'inner');
  mkdirSync(inner, { mode: 0o755 });
  assert.equal(isReachableForNobody(inner), true);
  assert.equal(isReachableForNobody(join(inner, 'not-there-yet')), true);
  chmodSync(directory, 0o700);
  assert.equal(isReachableForNobody(inner), false);
});
