import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { problem, problemTable, type ProblemName } from './problem.ts';

const names = Object.keys(problemTable) as ProblemName[];

test('docs/problems.md explains each problem, with its status, and no other', () => {
  const page = readFileSync(join(import.meta.dirname, '../../../../docs/problems.md'), 'utf8');
  const explained = [...page.matchAll(/^## (\S+)\n\n`(\d{3})`/gm)].map(([, name, status]) => [name, Number(status)]);
  const inTable = names.map((name) => [name, problemTable[name].status]);
  assert.deepEqual(explained, inTable);
  assert.equal(explained.length, [...page.matchAll(/^## /gm)].length);
});

test('a problem is what RFC 9457 says, and tells when to come again', () => {
  for (const name of names) {
    const { status, headers, body } = problem(name, { detail: 'why' });
    assert.equal(headers['content-type'], 'application/problem+json');
    const { type, title, detail, ...rest } = JSON.parse(String(body)) as Record<string, unknown>;
    assert.deepEqual([type, title, detail], [`urn:twiceproof:problem:${name}`, problemTable[name].title, 'why']);
    assert.deepEqual(rest, { status });
    assert.equal('retry-after' in headers, status === 503);
  }
  assert.equal(problem('busy', { afterMs: 1_001 }).headers['retry-after'], '2');
  assert.equal('detail' in JSON.parse(String(problem('busy').body)), false);
});
