/**
 * Latencies in log-linear buckets, as HdrHistogram has them: 128 to each doubling, so a percentile is
 * within 0.4 % of the true one, and 13 KB hold anything from a microsecond to an hour.
 */
const bucketBits = 7;
const firstOctave = 1 << bucketBits;
const buckets = 26 * firstOctave;
const largestUs = 2 ** 32 - 1;

export interface Histogram {
  count: number;
  maxUs: number;
  sumUs: number;
  counts: Uint32Array;
}

export interface Summary {
  count: number;
  meanMs: number;
  p50Ms: number;
  p90Ms: number;
  p99Ms: number;
  p999Ms: number;
  maxMs: number;
}

export function createHistogram(): Histogram {
  return { count: 0, maxUs: 0, sumUs: 0, counts: new Uint32Array(buckets) };
}

export function record(histogram: Histogram, ms: number): void {
  const us = Math.min(largestUs, Math.max(0, Math.round(ms * 1_000)));
  histogram.counts[bucketOf(us)]!++;
  histogram.count++;
  histogram.sumUs += us;
  if (us > histogram.maxUs) histogram.maxUs = us;
}

export function clear(histogram: Histogram): void {
  histogram.counts.fill(0);
  histogram.count = 0;
  histogram.sumUs = 0;
  histogram.maxUs = 0;
}

export function merge(histograms: readonly Histogram[]): Histogram {
  const sum = createHistogram();
  for (const { count, sumUs, maxUs, counts } of histograms) {
    sum.count += count;
    sum.sumUs += sumUs;
    sum.maxUs = Math.max(sum.maxUs, maxUs);
    for (let bucket = 0; bucket < buckets; bucket++) sum.counts[bucket]! += counts[bucket]!;
  }
  return sum;
}

/** The smallest recorded latency that at least this share of all does not exceed; 0 if there is none. */
export function percentileMs(histogram: Histogram, share: number): number {
  const wanted = Math.max(1, Math.ceil(share * histogram.count));
  let passed = 0;
  for (let bucket = 0; bucket < buckets; bucket++) {
    passed += histogram.counts[bucket]!;
    if (passed >= wanted) return Math.min(middleOf(bucket), histogram.maxUs) / 1_000;
  }
  return 0;
}

export function countAbove(histogram: Histogram, ms: number): number {
  let count = 0;
  for (let bucket = bucketOf(ms * 1_000) + 1; bucket < buckets; bucket++) count += histogram.counts[bucket]!;
  return count;
}

export function summarize(histogram: Histogram): Summary {
  const { count, sumUs, maxUs } = histogram;
  return {
    count,
    meanMs: rounded(count === 0 ? 0 : sumUs / count / 1_000),
    p50Ms: rounded(percentileMs(histogram, 0.5)),
    p90Ms: rounded(percentileMs(histogram, 0.9)),
    p99Ms: rounded(percentileMs(histogram, 0.99)),
    p999Ms: rounded(percentileMs(histogram, 0.999)),
    maxMs: rounded(maxUs / 1_000),
  };
}

/** Only the buckets that hold something: [bucket, count] each. `fromSparse` gives the histogram back, to merge. */
export interface SparseHistogram {
  maxUs: number;
  sumUs: number;
  buckets: [number, number][];
}

export function toSparse({ counts, maxUs, sumUs }: Histogram): SparseHistogram {
  const filled: [number, number][] = [];
  counts.forEach((count, bucket) => {
    if (count > 0) filled.push([bucket, count]);
  });
  return { maxUs, sumUs, buckets: filled };
}

export function fromSparse({ maxUs, sumUs, buckets: filled }: SparseHistogram): Histogram {
  const histogram = createHistogram();
  for (const [bucket, count] of filled) {
    histogram.counts[bucket] = count;
    histogram.count += count;
  }
  return Object.assign(histogram, { maxUs, sumUs });
}

/** Below 256 us each microsecond has its own bucket. */
function bucketOf(us: number): number {
  const shift = Math.max(0, 31 - bucketBits - Math.clz32(us));
  return shift * firstOctave + (us >>> shift);
}

function middleOf(bucket: number): number {
  const shift = Math.max(0, (bucket >>> bucketBits) - 1);
  const low = (bucket - shift * firstOctave) * 2 ** shift;
  return low + (2 ** shift - 1) / 2;
}

function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
