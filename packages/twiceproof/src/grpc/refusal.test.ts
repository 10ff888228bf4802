import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { status } from '@grpc/grpc-js';
import { refusalTable } from './refusal.ts';

test('docs/problems.md has the status of each refusal, and no other', () => {
  const page = readFileSync(join(import.meta.dirname, '../../../../docs/problems.md'), 'utf8');
  const explained = [...page.matchAll(/^## (\S+)\n\n`\d{3}`[^.]*?, `([A-Z_]+)`/gm)].map(([, name, code]) => [
    name,
    code,
  ]);
  const inTable = Object.entries(refusalTable).map(([name, { code }]) => [name, status[code]]);
  assert.deepEqual(explained, inTable);
});
