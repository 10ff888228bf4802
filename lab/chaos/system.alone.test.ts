import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { runChaos } from './chaos-under-test.ts';
import { drawSchedule, kindsOf, type Schedule } from './system/schedule.ts';

/** One that nobody has chosen for its results: it stands for all, and others are run by hand. */
const seed = 7;

test('everything breaks, and nothing is lost or doubled', async (t) => {
  const { report, out } = await runChaos(t, ['--quick', `--seed=${seed}`]);
  assert.equal(report.verdict, 'clean');
  const schedule = JSON.parse(readFileSync(join(out, 'schedule.json'), 'utf8')) as Schedule;
  const drawn = drawSchedule({ seed, seconds: 90, rate: 500, uniqueCharge: false, minOrders: 20_000 });
  assert.deepEqual(schedule, { ...drawn, faults: schedule.faults }, 'what is saved can be run again');
  assert.deepEqual(
    schedule.faults.map(({ outcome: _, ...fault }) => fault),
    drawn.faults,
  );
  for (const kind of kindsOf(drawn)) assert.ok(report.faults[kind]!.fired > 0, kind);
  assert.equal(report.command, `npm run chaos -- --quick --seed=${seed}`);
  assert.match(report.environment.postgres, /^\d+\.\d+/);
  assert.match(report.environment.kafka, /^\d+\.\d+/);
  assert.equal(existsSync(join(out, 'dump')), false, 'evidence is kept of what failed only');
});
