import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  clear,
  countAbove,
  createHistogram,
  fromSparse,
  merge,
  percentileMs,
  record,
  summarize,
  toSparse,
  type Histogram,
} from './histogram.ts';

const latencies = fc.array(
  fc.oneof(fc.nat(300), fc.nat(100_000), fc.nat(4_000_000_000)).map((us) => us / 1_000),
  { minLength: 1, maxLength: 300 },
);

function histogramOf(values: readonly number[]): Histogram {
  const histogram = createHistogram();
  for (const value of values) record(histogram, value);
  return histogram;
}

test('percentiles are within half a percent of the exact ones', () => {
  fc.assert(
    fc.property(latencies, fc.double({ min: 0, max: 1, noNaN: true }), (values, share) => {
      const sorted = values.toSorted((a, b) => a - b);
      const exact = sorted[Math.max(1, Math.ceil(share * sorted.length)) - 1]!;
      const found = percentileMs(histogramOf(values), share);
      assert.ok(Math.abs(found - exact) <= 0.005 * exact + 1e-9, `${found} for ${exact}`);
      assert.ok(found <= sorted.at(-1)! + 1e-9);
    }),
  );
});

test('merged, or written and read again, it is the histogram of all values', () => {
  fc.assert(
    fc.property(latencies, latencies, (some, others) => {
      const both = histogramOf([...some, ...others]);
      const merged = merge([fromSparse(toSparse(histogramOf(some))), histogramOf(others)]);
      assert.deepEqual(summarize(merged), summarize(both));
      assert.deepEqual(merged.counts, both.counts);
    }),
  );
});

test('what is above a latency is counted', () => {
  const histogram = histogramOf([0.1, 1, 10, 100, 1_000]);
  assert.equal(countAbove(histogram, 5), 3);
  assert.equal(countAbove(histogram, 0), 5);
  assert.equal(countAbove(histogram, 5_000), 0);
});

test('empty, and at the edges', () => {
  const histogram = createHistogram();
  assert.deepEqual(summarize(histogram), { count: 0, meanMs: 0, p50Ms: 0, p90Ms: 0, p99Ms: 0, p999Ms: 0, maxMs: 0 });
  record(histogram, -1);
  record(histogram, 1e12);
  assert.equal(histogram.count, 2);
  assert.equal(percentileMs(histogram, 0.5), 0);
  assert.ok(percentileMs(histogram, 1) > 4_270_000);
  clear(histogram);
  assert.deepEqual(histogram, createHistogram());
});
