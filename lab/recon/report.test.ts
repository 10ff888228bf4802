import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deltas } from './invariants.ts';
import type { Report } from './recon.ts';
import { tableOf } from './report.ts';

test('a table: what was counted, each delta with its ids, why it could not decide, and the verdict', () => {
  const none = Object.fromEntries(deltas.map((delta) => [delta, { count: 0, ids: [] }])) as unknown as Report['deltas'];
  const text = tableOf({
    verdict: 'violated',
    counts: { orders: 6_000_000 },
    deltas: { ...none, lost: { count: 3, ids: ['topic:a/1', 'topic:b/1'] } },
    reasons: ['a partition is away'],
    tookMs: 1_234,
    stepsMs: {},
  });
  const lines = text.split('\n');
  assert.equal(lines[0], `  orders${'6,000,000'.padStart(27)}`);
  assert.equal(lines[2], `  lost${'3'.padStart(29)}  answered or begun, and not there at the hop that is named`);
  assert.deepEqual(lines.slice(3, 7), [
    `${' '.repeat(37)}topic:a/1`,
    `${' '.repeat(37)}topic:b/1`,
    `${' '.repeat(37)}and 1 more`,
    `  doubled${'0'.padStart(26)}`,
  ]);
  assert.deepEqual(lines.slice(-2), ['  could not decide: a partition is away', 'verdict: violated (1.2 s)']);
});

test('nothing is said of what was not compared', () => {
  const reasons = ['a ledger cannot be read'];
  const text = tableOf({ verdict: 'undecided', counts: {}, deltas: {}, reasons, tookMs: 100, stepsMs: {} });
  assert.equal(text.trimStart(), 'could not decide: a ledger cannot be read\nverdict: undecided (0.1 s)');
});
