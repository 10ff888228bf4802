import assert from 'node:assert/strict';
import { test } from 'node:test';
import { beginningsMs, parsePhases, phasesText, planPhases, rowsOf } from './phases.ts';

test('phases are read as they are written', () => {
  const phases = [
    { perSecond: 1_000, seconds: 5 },
    { perSecond: 45_000, seconds: 1.5 },
  ];
  assert.deepEqual(parsePhases(phasesText(phases)), phases);
  for (const wrong of ['', '1000', '1000x', 'x5', '0x5', '1000x-1']) assert.throws(() => parsePhases(wrong), wrong);
});

test('every row is in one transaction, in order, and due in its phase', () => {
  const phases = parsePhases('100x2,1010x1,40000x0.5');
  const plan = planPhases(phases);
  const begins = beginningsMs(phases);
  assert.deepEqual(begins, [0, 2_000, 3_000, 3_500]);
  let next = 1;
  for (const { phase, from, count, dueMs } of plan) {
    assert.equal(from, next);
    assert.ok(count >= 1);
    assert.ok(dueMs >= begins[phase]! && dueMs < begins[phase + 1]!);
    next += count;
  }
  assert.equal(next - 1, rowsOf(phases));
  assert.equal(rowsOf(phases), 200 + 1_010 + 20_000);
  // A slow phase has a transaction for each row; a fast one has larger transactions, of nearly the same size.
  const counts = (wanted: number): number[] => plan.filter(({ phase }) => phase === wanted).map(({ count }) => count);
  assert.equal(counts(0).length, 200);
  assert.deepEqual(new Set(counts(1)), new Set([4, 5]));
  assert.deepEqual(new Set(counts(2)), new Set([160]));
});
