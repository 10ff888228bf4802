import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { runChaos } from './chaos-under-test.ts';
import type { Outcome } from './system/fault.ts';
import { crashPoints, type Schedule } from './system/schedule.ts';

/** Three minutes: a failure prints its seed, with which it can be run again. */
test('a seed that nobody has chosen: nothing is lost or doubled in three minutes', async (t) => {
  const { report } = await runChaos(t, ['--soak=180s']);
  assert.equal(report.verdict, 'clean');
  assert.ok(report.recon.counts['orders']! > 40_000);
});

test('with the constraint against a second charge, and three in ten delivered again, it is the same', async (t) => {
  const { report } = await runChaos(t, ['--soak=90s', '--seed=11', '--unique-charge', '--dup-rate=0.3']);
  assert.equal(report.verdict, 'clean');
  assert.equal(report.uniqueCharge, true);
  assert.ok(report.injectedDuplicates > 2_000, `${report.injectedDuplicates} duplicates`);
});

test('behind PgBouncer in transaction mode it is the same', async (t) => {
  const { report } = await runChaos(t, ['--soak=90s', '--seed=14', '--pooler']);
  assert.equal(report.verdict, 'clean');
  assert.ok(report.recon.counts['orders']! > 10_000);
  assert.ok(report.pooledTransactions! > 5_000, `${report.pooledTransactions} transactions through the pooler`);
});

const shots = Object.keys(crashPoints).map((point) => [`--crash-point=${point}`]);
for (const shot of [...shots, ['--crash-point=effect', '--effect-order=charge-first']]) {
  test(`the headline shot ${shot.join(' ')}: killed there again and again, nothing is lost or doubled`, async (t) => {
    const { report } = await runChaos(t, [...shot, '--seed=12']);
    assert.equal(report.verdict, 'clean');
    assert.ok(report.faults['kill']!.fired >= 2);
  });
}

test('what a run has left is run again, as it was', async (t) => {
  const first = await runChaos(t, ['--crash-point=publish', '--seed=13']);
  const again = await runChaos(t, [`--replay=${join(first.out, 'schedule.json')}`]);
  const [left, leftAgain] = [first, again].map(({ out }) => {
    return JSON.parse(readFileSync(join(out, 'schedule.json'), 'utf8')) as Schedule & {
      faults: { outcome: Outcome }[];
    };
  });
  const { faults, ...drawn } = left!;
  const { faults: faultsAgain, ...drawnAgain } = leftAgain!;
  assert.deepEqual(drawnAgain, drawn);
  const planned = faults.map(({ outcome: _, ...fault }) => fault);
  assert.deepEqual(
    faultsAgain.map(({ outcome: _, ...fault }) => fault),
    planned,
  );
  // A position is reached in its own time, so one or the other may come too late; that it fired at its position is what
  // `strike` waits for.
  const fired = (those: typeof faults): number[] =>
    those.flatMap(({ outcome }, n) => (outcome?.result === 'fired' ? [n] : []));
  const both = fired(faults).filter((n) => fired(faultsAgain).includes(n));
  assert.ok(both.length >= 2, JSON.stringify([fired(faults), fired(faultsAgain)]));
});
