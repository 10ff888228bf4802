import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Verdict } from './judges.ts';
import { reportOf, textOf, type Facts } from './report.ts';
import { drawSchedule } from './schedule.ts';

const schedule = drawSchedule({ seed: 1, seconds: 90, rate: 500, uniqueCharge: false, minOrders: 20_000 });
const verdict: Verdict = {
  verdict: 'clean',
  counts: { keys: 30_000, orders: 25_000, outboxRows: 30_000, wireDuplicates: 12 },
  deltas: { lost: { count: 0, ids: [] } },
  reasons: [],
  tookMs: 1,
};
const good: Facts = {
  schedule,
  outcomes: schedule.faults.map(() => ({ result: 'fired' })),
  verdict,
  drained: { isDrained: true, written: 30_000, done: 30_000 },
  edgeReplays: 5,
  inboxDuplicates: 7,
  injected: 3,
  pooled: undefined,
  restarts: {},
  load: { code: 0, unsettled: 0 },
  endedBadly: [],
  phasesMs: { boot: 1_000 },
};

test('a clean verdict of a run in which everything happened is ok, and bounds what can be lost', () => {
  const report = reportOf(good);
  assert.deepEqual([report.ok, report.reasons, report.upperBound], [true, [], 3 / 30_000]);
  assert.match(textOf(report), /ok: clean, seed 1/);
});

/** What is wrong with the run, and what is said of it. */
const bad: [facts: Partial<Facts>, reason: RegExp][] = [
  [{ verdict: { ...verdict, verdict: 'violated' } }, /recon: violated/],
  [{ verdict: { ...verdict, verdict: 'undecided', reasons: ['no brokers'] } }, /no brokers/],
  [{ drained: { isDrained: false, written: 9, done: 8 } }, /not drained in time: 8 of 9/],
  [{ load: { code: null, unsettled: undefined } }, /the load ended with null/],
  [{ load: { code: 0, unsettled: 3 } }, /3 keys got no answer/],
  [{ verdict: { ...verdict, counts: { ...verdict.counts, otherOrders: 1 } } }, /1 orders are of no account/],
  [{ endedBadly: ['relay-1'] }, /relay-1 did not end well/],
  [{ edgeReplays: 0 }, /vacuous: there were no edge replays/],
  [{ inboxDuplicates: 3, injected: 3 }, /vacuous: there were no inbox duplicates/],
  [
    { verdict: { ...verdict, counts: { ...verdict.counts, outboxRows: 25_000 } } },
    /vacuous: there were no status changes/,
  ],
  [
    { verdict: { ...verdict, counts: { ...verdict.counts, wireDuplicates: 0 } } },
    /vacuous: there were no wire duplicates/,
  ],
  [{ injected: 0 }, /vacuous: no duplicate was injected/],
  [{ pooled: 2 }, /vacuous: 2 transactions went through the pooler/],
  [{ verdict: { ...verdict, counts: { ...verdict.counts, orders: 19_999 } } }, /19999 orders, fewer than 20000/],
  [
    { outcomes: schedule.faults.map(({ kind }) => ({ result: kind === 'drip' ? 'missed' : 'fired' })) },
    /vacuous: no fault of kind drip had an effect/,
  ],
];

for (const [facts, reason] of bad) {
  test(`not ok: ${reason.source}`, () => {
    const report = reportOf({ ...good, ...facts });
    assert.equal(report.ok, false);
    assert.match(report.reasons.join('\n'), reason);
    assert.match(textOf(report), reason);
  });
}

test('a headline shot needs nothing that it does not cause', () => {
  const shot = { ...schedule, dupRate: 0, minOrders: 0, mustSee: ['edge replays' as const] };
  assert.equal(reportOf({ ...good, schedule: shot, injected: 0, inboxDuplicates: 0 }).ok, true);
});
