import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runChaos } from './chaos-under-test.ts';
import { crashPoints } from './system/schedule.ts';

/** Three minutes: a failure prints its seed, with which it can be run again. */
test('a seed that nobody has chosen: nothing is lost or doubled in three minutes', async (t) => {
  const { report } = await runChaos(t, ['--soak=180s']);
  assert.equal(report.verdict, 'clean');
  assert.ok(report.recon.counts['orders']! > 40_000);
});

test('with the constraint against a second charge it is the same', async (t) => {
  const { report } = await runChaos(t, ['--soak=60s', '--seed=11', '--unique-charge']);
  assert.equal(report.verdict, 'clean');
  assert.equal(report.uniqueCharge, true);
});

for (const crashPoint of Object.keys(crashPoints)) {
  test(`the headline shot at ${crashPoint}: killed there again and again, nothing is lost or doubled`, async (t) => {
    const { report } = await runChaos(t, [`--crash-point=${crashPoint}`, '--seed=12']);
    assert.equal(report.verdict, 'clean');
    assert.ok(report.faults['kill']!.fired >= 2);
  });
}
