import assert from 'node:assert/strict';
import { test } from 'node:test';
import { environment } from '../../shared/origin.ts';
import type { Fault, Outcome } from './fault.ts';
import type { Verdict } from './judges.ts';
import { reportOf, textOf, type Facts, type Origin } from './report.ts';
import { drawSchedule } from './schedule.ts';

const schedule = drawSchedule({ seed: 1, seconds: 90, rate: 500, uniqueCharge: false, minOrders: 20_000 });
const verdict: Verdict = {
  verdict: 'clean',
  counts: {
    intents: 30_000,
    answered: 29_990,
    neverSent: 10,
    replayedAnswers: 5,
    orders: 25_000,
    outboxRows: 30_000,
    wireDuplicates: 12,
  },
  deltas: { lost: { count: 0, ids: [] } },
  reasons: [],
  tookMs: 1,
};
const good: Facts = {
  schedule,
  outcomes: schedule.faults.map(() => ({ result: 'fired' })),
  verdict,
  drained: { isDrained: true, written: 30_000, done: 30_000, unread: 0, open: 0 },
  inboxDuplicates: 7,
  injected: 3,
  pooled: undefined,
  restarts: {},
  load: { code: 0, unsettled: 0 },
  endedBadly: [],
  phasesMs: { boot: 1_000 },
};

const origin: Origin = {
  command: 'npm run chaos -- --quick --seed=1',
  startedAt: '2026-01-01T00:00:00.000Z',
  commit: 'abcdef+',
  environment: { ...environment(), postgres: '18.4', kafka: '4.3.1' },
};

test('a clean verdict of a run in which everything happened is ok, and bounds what can be lost', () => {
  const report = reportOf(origin, good);
  assert.deepEqual([report.ok, report.reasons, report.upperBound], [true, [], 3 / 29_990]);
  assert.equal(report.absorbed, 12);
  assert.match(textOf(report), /ok: clean, seed 1/);
});

/** All had an effect but these. */
function without(isMissed: (fault: Fault) => boolean, faults: readonly Fault[] = schedule.faults): Outcome[] {
  return faults.map((fault) => ({ result: isMissed(fault) ? 'missed' : 'fired' }));
}

const cut: Fault = { kind: 'cut', wire: 'relay-1:postgres', scope: 'all', forMs: 1, atMs: 1 };
const cutThere: Fault = { ...cut, wire: 'orders-1:grpc' };
const dripThere: Fault = { ...cut, kind: 'drip', wire: 'orders-2:grpc' };
const drip: Fault = { ...cut, kind: 'drip' };
const isOf = (program: string) => (fault: Fault) => 'role' in fault && fault.role.startsWith(program);

/** What is wrong with the run, and what is said of it. */
const bad: [facts: Partial<Facts>, reason: RegExp][] = [
  [{ verdict: { ...verdict, verdict: 'violated' } }, /recon: violated/],
  [{ verdict: { ...verdict, verdict: 'undecided', reasons: ['no brokers'] } }, /no brokers/],
  [
    { drained: { isDrained: false, written: 9, done: 8, unread: 0, open: 0 } },
    /not drained in time: 8 of 9 messages had an effect$/,
  ],
  [
    { drained: { isDrained: false, written: 9, done: 9, unread: 2, open: 0 } },
    /not drained .*, and 2 records were not read$/,
  ],
  [
    { drained: { isDrained: false, written: 9, done: 9, unread: 0, open: 1 } },
    /not drained .*, and 1 transactions stood open$/,
  ],
  [{ load: { code: null, unsettled: undefined } }, /the load ended with null/],
  [{ load: { code: 0, unsettled: 3 } }, /3 keys got no answer/],
  [{ verdict: { ...verdict, counts: { ...verdict.counts, otherOrders: 1 } } }, /1 orders are of no account/],
  [{ verdict: { ...verdict, counts: { ...verdict.counts, refused: 2 } } }, /^2 keys were refused/],
  [{ verdict: { ...verdict, counts: { ...verdict.counts, unknown: 2 } } }, /^of 2 keys nobody knows/],
  [{ endedBadly: ['relay-1'] }, /relay-1 did not end well/],
  [
    { verdict: { ...verdict, counts: { ...verdict.counts, replayedAnswers: 0 } } },
    /vacuous: there were no edge replays/,
  ],
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
  [{ outcomes: without(({ kind }) => kind === 'drip') }, /^vacuous: no fault of kind drip had an effect$/],
  [
    { outcomes: without((fault) => fault.kind === 'kill' && isOf('relay')(fault)) },
    /^vacuous: no fault of kind kill had an effect on relay$/,
  ],
  [
    { outcomes: without((fault) => fault.kind === 'freeze' && isOf('orders')(fault)) },
    /^vacuous: no fault of kind freeze had an effect on orders$/,
  ],
  [
    {
      schedule: { ...schedule, faults: [cut, drip, cutThere, dripThere] },
      outcomes: without((fault) => fault === cutThere || fault === dripThere, [cut, drip, cutThere, dripThere]),
    },
    /^vacuous: no fault had an effect on the wire orders:grpc$/,
  ],
];

for (const [facts, reason] of bad) {
  test(`not ok: ${reason.source}`, () => {
    const report = reportOf(origin, { ...good, ...facts });
    assert.deepEqual([report.ok, report.upperBound], [false, undefined]);
    assert.match(report.reasons.join('\n'), reason);
    for (const each of report.reasons) assert.ok(textOf(report).includes(each), each);
  });
}

test('what was struck is told by kind and by program; one that missed a wire, or a program once, is chance', () => {
  const kill: Fault = { kind: 'kill', role: 'orders-2', atMs: 1 };
  const faults: Fault[] = [kill, { ...kill, role: 'relay-1' }, cut, cutThere];
  const outcomes = without((fault) => isOf('relay')(fault) || fault === cutThere, faults);
  const report = reportOf(origin, { ...good, schedule: { ...schedule, faults }, outcomes });
  assert.deepEqual(report.reasons, []);
  assert.deepEqual(report.faults['kill'], {
    planned: 2,
    fired: 1,
    on: { orders: { planned: 1, fired: 1 }, relay: { planned: 1, fired: 0 } },
  });
  assert.match(textOf(report), /^ {2}cut +1 of 2 {3}orders:grpc 0 of 1, relay:postgres 1 of 1$/m);
});

test('a report says of which tree it is, on what it ran, and what repeats it', () => {
  const report = reportOf(origin, good);
  const { command, startedAt, commit, environment: ranOn } = report;
  assert.deepEqual({ command, startedAt, commit, environment: ranOn }, origin);
  assert.match(
    textOf(report),
    /^commit abcdef\+, node v.+, Postgres 18\.4, Kafka 4\.3\.1, \d+ cores .+\nnpm run chaos -- --quick --seed=1$/m,
  );
});

test('a headline shot needs nothing that it does not cause', () => {
  const shot = { ...schedule, dupRate: 0, minOrders: 0, mustSee: ['edge replays' as const] };
  assert.equal(reportOf(origin, { ...good, schedule: shot, injected: 0, inboxDuplicates: 0 }).ok, true);
});
