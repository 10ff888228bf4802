import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { ReconResult } from './bench.ts';

function resultOf(name: string): ReconResult {
  return JSON.parse(
    readFileSync(join(import.meta.dirname, '../../results', name, 'result.json'), 'utf8'),
  ) as ReconResult;
}

test('the committed results: 6 million orders are judged, and what the program holds does not grow with them', () => {
  const [full, quick] = [resultOf('recon'), resultOf('recon-quick')];
  assert.deepEqual([full.orders, quick.orders], [6_000_000, 300_000]);
  for (const { pass, commit, orders, run } of [full, quick]) {
    assert.ok(pass);
    assert.match(commit, /^[0-9a-f]{40}$/);
    assert.deepEqual([run.verdict, run.counts['orders'], run.counts['charges']], ['clean', orders, orders]);
  }
  assert.ok(full.run.memoryMB < 1.5 * quick.run.memoryMB, `${full.run.memoryMB} and ${quick.run.memoryMB} MB`);
});
