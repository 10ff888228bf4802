import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isLargeTurn } from './expiry.ts';
import { dayMs, daysAround } from './statement.ts';
import { bytesOfStores, keysOfDay } from './store.ts';

test('the keys are spread over the days by time, and none is lost by rounding', () => {
  const toMs = Date.UTC(2026, 0, 9, 6);
  const span = { fromMs: toMs - 8 * dayMs, toMs };
  const counts = daysAround(span.fromMs, toMs + 2 * dayMs).map((day) => keysOfDay(day, span, 1_000_003));
  assert.equal(
    counts.reduce((sum, count) => sum + count, 0),
    1_000_003,
  );
  assert.deepEqual(
    counts.map((count) => Math.round(count / 1_000)),
    [94, 125, 125, 125, 125, 125, 125, 125, 31, 0, 0],
  );
});

test('100 M keys in two tables and 20 M of version 4 need about 29 GB', () => {
  const stores = [
    { kind: 'partitioned', keys: 100_000_000 },
    { kind: 'plain', keys: 100_000_000 },
    { kind: 'random', keys: 20_000_000 },
  ] as const;
  assert.equal(Math.round(bytesOfStores(stores) / 1e9), 29);
});

test('large and small days come as often, and not strictly in turn', () => {
  const turns = Array.from({ length: 10 }, (_, n) => (isLargeTurn(n) ? 'L' : 's'));
  assert.equal(turns.join(''), 'sLLsLssLLs');
  assert.equal(Array.from({ length: 20 }, (_, n) => isLargeTurn(n)).filter(Boolean).length, 10);
});
