import assert from 'node:assert/strict';
import { test } from 'node:test';
import { growthPerSecond, lags, secondsUntilFlat, timeOf, type Lag } from './lag.ts';

const committed = [
  { atMs: 1_000, count: 0 },
  { atMs: 2_000, count: 1_000 },
  { atMs: 3_000, count: 1_000 },
  { atMs: 4_000, count: 5_000 },
];

test('rows and age of the lag, between the readings of both counters', () => {
  const published = [
    { atMs: 500, count: 0 },
    { atMs: 1_500, count: 250 },
    { atMs: 2_500, count: 1_000 },
    { atMs: 3_500, count: 1_500 },
    { atMs: 4_500, count: 5_000 },
  ];
  assert.deepEqual(lags(committed, published), [
    { atMs: 1_500, rows: 250, ageMs: 250 },
    { atMs: 2_500, rows: 0, ageMs: 0 },
    // 3,000 were committed by then; the 1,500th an eighth of a second after the third one began.
    { atMs: 3_500, rows: 1_500, ageMs: 375 },
  ]);
  assert.deepEqual(lags([], published), []);
});

test('a relay that was seen later than the writer is not ahead of it', () => {
  assert.deepEqual(lags(committed, [{ atMs: 1_500, count: 700 }]), [{ atMs: 1_500, rows: 0, ageMs: 0 }]);
});

test('when a counter passed a count', () => {
  assert.equal(timeOf(committed, 500), 1_500);
  assert.equal(timeOf(committed, 1_000), 3_000, 'the last moment at which it was no more');
  assert.equal(timeOf(committed, 9_000), 4_000);
});

function samples(...ages: number[]): Lag[] {
  return ages.map((ageMs, n) => ({ atMs: 10_000 + 500 * n, rows: 10 * ageMs, ageMs }));
}

test('growth is the slope of the best line, whatever it stands on', () => {
  assert.equal(growthPerSecond(samples(0, 100, 200, 300)), 2_000);
  assert.equal(growthPerSecond(samples(40, 40, 40)), 0);
  assert.equal(growthPerSecond(samples(10, 30, 30, 10)), 0);
  assert.equal(growthPerSecond([]), 0);
});

test('the lag is flat when it stays low for the time that is asked for', () => {
  const flatness = { ageMs: 250, holdMs: 1_000 };
  assert.equal(secondsUntilFlat(samples(900, 500, 200, 100, 100), flatness), 1);
  assert.equal(secondsUntilFlat(samples(900, 200, 900, 200, 200, 200), flatness), 1.5, 'one good moment is no end');
  assert.equal(secondsUntilFlat(samples(100, 100, 100), flatness), 0);
  assert.equal(secondsUntilFlat(samples(900, 900, 900, 200), flatness), Infinity, 'it did not hold');
  assert.equal(secondsUntilFlat(samples(900, 900, 900), flatness), Infinity);
  assert.equal(secondsUntilFlat([], flatness), Infinity, 'what was not watched was not flat');
});
