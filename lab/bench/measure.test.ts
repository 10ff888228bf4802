import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exampleRound } from './example-round.ts';
import { undisturbed, type Latency } from './measure.ts';

const example = exampleRound().edge.group!.latency['5000']!;

async function measured(shares: readonly number[]): Promise<{ latency: Latency; attempts: number }> {
  let attempts = 0;
  const latency = await undisturbed(shares.length, async (attempt) => {
    attempts += 1;
    return { ...example, stolenShare: shares[attempt]!, p99Ms: 10 + attempt, okShare: 1 - attempt / 100 };
  });
  return { latency, attempts };
}

test('a window that the host left alone is measured once, however slow it was', async () => {
  const { latency, attempts } = await measured([0.002, 0, 0]);
  assert.equal(attempts, 1);
  assert.deepEqual(latency, { ...example, stolenShare: 0.002, p99Ms: 10, okShare: 1, attempt: 1 });
});

test('one that was disturbed is measured again, and told', async () => {
  const { latency, attempts } = await measured([0.01, 0.02, 0.001, 0]);
  assert.equal(attempts, 3);
  assert.deepEqual([latency.p99Ms, latency.attempt], [12, 3]);
  assert.deepEqual(
    latency.disturbed?.map(({ stolenShare, p99Ms }) => [stolenShare, p99Ms]),
    [
      [0.01, 10],
      [0.02, 11],
    ],
  );
});

test('of those that were all disturbed the least counts', async () => {
  const { latency, attempts } = await measured([0.02, 0.01, 0.03]);
  assert.equal(attempts, 3);
  assert.equal(latency.p99Ms, 11);
  assert.equal(latency.okShare, 0.98, 'what was not answered counts, whatever the host did');
  assert.equal(latency.disturbed?.length, 2);
});
