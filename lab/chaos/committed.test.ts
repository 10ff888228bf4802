import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Report } from './system/report.ts';
import type { Schedule } from './system/schedule.ts';

const results = join(import.meta.dirname, '../results/chaos');

function read(...path: string[]): unknown {
  return JSON.parse(readFileSync(join(results, ...path), 'utf8'));
}

test('the committed runs are clean and not vacuous, of different seeds, at least three of them of the usual length', () => {
  const runs = readdirSync(results).map((name) => ({
    name,
    report: read(name, 'report.json') as Report,
    schedule: read(name, 'schedule.json') as Schedule,
  }));
  for (const { name, report, schedule } of runs) {
    assert.deepEqual([report.ok, report.verdict, report.reasons], [true, 'clean', []], name);
    assert.ok(report.upperBound! > 0 && report.absorbed! > 0, name);
    assert.match(report.commit, /^[0-9a-f]{40}$/, `${name} is of a tree that was committed`);
    assert.equal(report.seed, schedule.seed);
  }
  assert.equal(new Set(runs.map(({ report }) => report.seed)).size, runs.length);
  assert.ok(runs.filter(({ report }) => report.seconds >= 600).length >= 3);
});
