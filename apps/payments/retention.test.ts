import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parse } from '@twiceproof/program';
import { flags, msOf, type PaymentsFlags } from './flags.ts';
import { decideRetention } from './retention.ts';

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const marginMs = hourMs / 6;
const times = { retentionMs: 7 * dayMs, segmentMs: 7 * dayMs, checkIntervalMs: 300_000, offsetsRetentionMs: 7 * dayMs };
const forEver = { ...times, retentionMs: Infinity };

function given(...args: string[]): PaymentsFlags {
  const parsed = parse({ name: 'payments', summary: '', flags, run: async () => 0 }, args, {});
  assert.ok(parsed.kind === 'run', JSON.stringify(parsed));
  return parsed.flags;
}

test('times have units, and none of them is nothing', () => {
  const read = ['9d', '36h', '5m', '90s', '500ms'].map(msOf);
  assert.deepEqual(read, [9 * dayMs, 36 * hourMs, 300_000, 90_000, 500]);
  for (const text of ['9', 'd', '-1d', '1.5d', '0s', '1 d', '1w', '9d9', '']) assert.equal(msOf(text), undefined, text);
});

test('the computed time to live is the horizon and one partition', () => {
  const { horizonMs, ttlMs, partitionMs } = decideRetention(times, given());
  assert.equal(horizonMs, dayMs + 14 * dayMs + 300_000 + marginMs);
  assert.equal(partitionMs, dayMs);
  assert.equal(ttlMs, horizonMs + dayMs);
  const wider = decideRetention(times, given('--replay-window=30d', '--outbox-wait=2d', '--partition-width=1h'));
  assert.equal(wider.horizonMs, 32 * dayMs + marginMs);
  assert.equal(wider.ttlMs, wider.horizonMs + hourMs);
});

test('a time to live is taken from the horizon on, and below only for experiments', () => {
  const { horizonMs } = decideRetention(times, given());
  assert.equal(decideRetention(times, given(`--dedup-ttl=${horizonMs / 1_000}s`)).ttlMs, horizonMs);
  assert.throws(() => decideRetention(times, given(`--dedup-ttl=${horizonMs / 1_000 - 1}s`)), { code: 'TP_HORIZON' });
  const unsafe = decideRetention(times, given('--dedup-ttl=5s', '--unsafe-ttl'));
  assert.deepEqual([unsafe.ttlMs, unsafe.horizonMs], [5_000, horizonMs]);
});

test('a topic that keeps all needs a window, or an experiment', () => {
  assert.throws(() => decideRetention(forEver, given('--dedup-ttl=900d')), { code: 'TP_HORIZON' });
  assert.equal(decideRetention(forEver, given('--replay-window=30d')).horizonMs, 31 * dayMs + marginMs);
  assert.throws(() => decideRetention(forEver, given('--replay-window=30d', '--dedup-ttl=30d')), {
    code: 'TP_HORIZON',
  });
  assert.equal(decideRetention(forEver, given('--dedup-ttl=5s', '--unsafe-ttl')).horizonMs, Infinity);
});

test('narrow partitions are made and dropped more often, and not so far ahead', () => {
  const usual = decideRetention(times, given());
  assert.deepEqual([usual.aheadMs, usual.intervalMs], [2 * dayMs, 60_000]);
  const narrow = decideRetention(times, given('--partition-width=2s'));
  assert.deepEqual([narrow.aheadMs, narrow.intervalMs], [100_000, 2_000]);
});
