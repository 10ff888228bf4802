import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { completeSymlinks } from './postgres-binaries.ts';

test('the symlinks of the package are made when its install script did not run, and kept when it did', (t) => {
  const home = mkdtempSync(join(tmpdir(), 'twiceproof-binaries-'));
  t.after(() => rmSync(home, { recursive: true }));
  const lib = join(home, 'native/lib');
  mkdirSync(lib, { recursive: true });
  writeFileSync(join(lib, 'libpq.so.5.18'), 'the library');
  const links = [
    { source: 'native/lib/libpq.so.5.18', target: 'native/lib/libpq.so.5' },
    { source: 'native/lib/libpq.so.5.18', target: 'native/lib/libpq.so' },
  ];
  writeFileSync(join(home, 'native/pg-symlinks.json'), JSON.stringify(links));
  for (let times = 0; times < 2; times += 1) {
    completeSymlinks(home);
    for (const name of ['libpq.so', 'libpq.so.5']) {
      assert.equal(readlinkSync(join(lib, name)), 'libpq.so.5.18');
      assert.equal(readFileSync(join(lib, name), 'utf8'), 'the library');
    }
  }
});
