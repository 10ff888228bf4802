import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { nodeFlags } from './node-flags.ts';

test('what the lab starts has the flags that the scripts of npm give it', () => {
  const text = readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8');
  const { scripts } = JSON.parse(text) as { scripts: Record<string, string> };
  for (const name of ['orders', 'relay', 'payments']) {
    const flags = scripts[name]!.split(' ').filter((word) => word.startsWith('--'));
    assert.deepEqual(flags.toSorted(), nodeFlags.toSorted(), name);
  }
});
