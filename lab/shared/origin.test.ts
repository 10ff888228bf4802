import assert from 'node:assert/strict';
import { test } from 'node:test';
import { currentCommit, environment } from './origin.ts';

test('the commit of this tree, and what it runs on', () => {
  assert.match(currentCommit(), /^[0-9a-f]{40}\+?$|^unknown$/);
  const { node, cpu, cores } = environment();
  assert.equal(node, process.version);
  assert.ok(cpu !== '' && cores > 0);
});
