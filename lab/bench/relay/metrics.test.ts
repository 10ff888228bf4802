import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bucketsOf, counterOf, percentileBetween } from './metrics.ts';

function text(...counts: number[]): string {
  const bounds = ['0.01', '0.02', '0.05', '+Inf'];
  return [
    '# TYPE age_seconds histogram',
    ...counts.map((count, n) => `age_seconds_bucket{le="${bounds[n]}"} ${count}`),
    `age_seconds_sum 1.5`,
    'other_seconds_bucket{le="0.01"} 99',
    '',
  ].join('\n');
}

test('percentiles of what came between two readings', () => {
  const before = bucketsOf(text(1_000, 1_000, 1_000, 1_000), 'age_seconds');
  const after = bucketsOf(text(1_050, 1_090, 1_100, 1_100), 'age_seconds');
  assert.equal(percentileBetween(before, after, 0.5), 0.01);
  assert.equal(percentileBetween(before, after, 0.7)?.toFixed(4), '0.0150');
  assert.equal(percentileBetween(before, after, 1), 0.05);
  assert.equal(percentileBetween(before, before, 0.5), undefined);
});

test('a reading before the first message is empty, and what is above all bounds is at least the last of them', () => {
  const nothing = bucketsOf('', 'age_seconds');
  assert.equal(percentileBetween(nothing, bucketsOf(text(0, 0, 0, 10), 'age_seconds'), 0.5), 0.05);
  assert.equal(percentileBetween(nothing, nothing, 0.5), undefined);
});

test('a counter is added up over its labels', () => {
  const page =
    'keys_total{operation="a",result="miss"} 5\nkeys_total{operation="b",result="miss"} 7\nkeys_total{operation="a",result="hit"} 9\nkeys_total_other{result="miss"} 1\n';
  assert.equal(counterOf(page, 'keys_total', 'result="miss"'), 12);
  assert.equal(counterOf('', 'keys_total', 'result="miss"'), 0);
});
