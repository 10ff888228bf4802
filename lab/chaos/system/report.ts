/** What a run has shown, and whether it has shown anything at all. */
import type { Environment } from '../../shared/origin.ts';
import { isWireKind, type Fault, type Outcome } from './fault.ts';
import type { Drained } from './drain.ts';
import type { Verdict } from './judges.ts';
import { classOf, type Path, type Schedule } from './schedule.ts';

/** How it came about. */
export interface Origin {
  /** What repeats it. */
  command: string;
  startedAt: string;
  /** Of the tree that ran; `+` if files were changed since. */
  commit: string;
  environment: Environment & { postgres: string; kafka: string };
}

export interface Facts {
  schedule: Schedule;
  outcomes: readonly Outcome[];
  verdict: Verdict;
  drained: Drained;
  /** Of /metrics, over all processes: what was not done again has left nothing that a judge could read. */
  inboxDuplicates: number;
  injected: number;
  /** Transactions through the pooler, where there is one. */
  pooled: number | undefined;
  restarts: Record<string, number>;
  /** How the load ended; of some keys it never learned what became of them. */
  load: { code: number | null; unsettled: number | undefined };
  /** Programs that did not end well when they were told to. */
  endedBadly: readonly string[];
  phasesMs: Record<string, number>;
}

/** How many were planned, and how many of them had an effect. */
interface Count {
  planned: number;
  fired: number;
}

export interface Report extends Origin {
  ok: boolean;
  verdict: Verdict['verdict'];
  /** Why it is not ok; empty if it is. */
  reasons: string[];
  seed: number;
  seconds: number;
  rate: number;
  uniqueCharge: boolean;
  /** By kind, and of each kind by what was to be struck, such as `relay`, `broker` or the wire `orders:grpc`. */
  faults: Record<string, Count & { on: Record<string, Count> }>;
  paths: Record<Path, number>;
  injectedDuplicates: number;
  pooledTransactions?: number | undefined;
  /** Records that stood on the topic once more than they should, which payments was done with and which changed nothing. */
  absorbed: number | undefined;
  /** With 95 % confidence no more than this share of the intents that were answered is lost or doubled, given that none was: 3/N. */
  upperBound: number | undefined;
  recoveryMs: { median: number; longest: number } | undefined;
  restarts: Record<string, number>;
  phasesMs: Record<string, number>;
  recon: Verdict;
}

export function reportOf(origin: Origin, facts: Facts): Report {
  const { schedule, outcomes, verdict, drained, endedBadly } = facts;
  const faults = countFaults(schedule.faults, outcomes);
  const paths: Record<Path, number> = {
    'edge replays': verdict.counts['replayedAnswers'] ?? 0,
    'wire duplicates': verdict.counts['wireDuplicates'] ?? 0,
    // Beyond what payments has delivered to itself. Both are lower bounds, so this may be a little off.
    'inbox duplicates': Math.max(0, facts.inboxDuplicates - facts.injected),
    'status changes': Math.max(0, (verdict.counts['outboxRows'] ?? 0) - (verdict.counts['orders'] ?? 0)),
  };
  const orders = verdict.counts['orders'] ?? 0;
  const answered = verdict.counts['answered'] ?? 0;
  // By the judge's word. The load asks for nothing that is not right, and again until there is an answer.
  const refused = verdict.counts['refused'] ?? 0;
  const unknown = verdict.counts['unknown'] ?? 0;
  // These databases have no other runs in them.
  const strangers = verdict.counts['otherOrders'] ?? 0;
  const reasons = [
    ...(verdict.verdict === 'clean' ? [] : [`recon: ${verdict.verdict}`, ...verdict.reasons]),
    ...(drained.isDrained ? [] : [notDrained(drained)]),
    ...(facts.load.code === 0 ? [] : [`the load ended with ${String(facts.load.code)}`]),
    ...(facts.load.unsettled === 0
      ? []
      : [`${facts.load.unsettled ?? 'nobody knows how many'} keys got no answer after all was healed`]),
    ...(refused > 0 ? [`${refused} keys were refused, though they ask for what is right`] : []),
    ...(unknown > 0 ? [`of ${unknown} keys nobody knows what became of them`] : []),
    ...(strangers > 0 ? [`${strangers} orders are of no account that was asked for`] : []),
    ...endedBadly.map((role) => `${role} did not end well when it was told to`),
    ...vacuousBecause(schedule, faults, paths, orders, facts),
  ];
  const recoveries = outcomes.flatMap(({ recoveredMs }) => recoveredMs ?? []).sort((a, b) => a - b);
  return {
    ok: reasons.length === 0,
    verdict: verdict.verdict,
    reasons,
    ...origin,
    seed: schedule.seed,
    seconds: schedule.seconds,
    rate: schedule.rate,
    uniqueCharge: schedule.uniqueCharge,
    faults,
    paths,
    injectedDuplicates: facts.injected,
    pooledTransactions: facts.pooled,
    absorbed: verdict.verdict === 'clean' && drained.isDrained ? paths['wire duplicates'] : undefined,
    upperBound: reasons.length === 0 && answered > 0 ? 3 / answered : undefined,
    recoveryMs:
      recoveries.length > 0 ? { median: recoveries[recoveries.length >> 1]!, longest: recoveries.at(-1)! } : undefined,
    restarts: facts.restarts,
    phasesMs: facts.phasesMs,
    recon: verdict,
  };
}

function notDrained({ written, done, unread, open }: Drained): string {
  const unreadOnes = Number.isFinite(unread) ? `${unread} records` : 'nobody knows how many records';
  const left = unread > 0 ? `, and ${unreadOnes} were not read` : '';
  const stuck = open > 0 ? `, and ${open} transactions stood open` : '';
  return `not drained in time: ${done} of ${written} messages had an effect${left}${stuck}`;
}

function countFaults(faults: readonly Fault[], outcomes: readonly Outcome[]): Report['faults'] {
  const counts: Report['faults'] = {};
  faults.forEach((fault, n) => {
    const one = { planned: 1, fired: outcomes[n]?.result === 'fired' ? 1 : 0 };
    const ofKind = (counts[fault.kind] ??= { planned: 0, fired: 0, on: {} });
    add(ofKind, one);
    add((ofKind.on[classOf(fault)] ??= { planned: 0, fired: 0 }), one);
  });
  return counts;
}

/** One that misses may have come at a bad moment; of two it is no longer chance. */
function isNeverStruck({ planned, fired }: Count): boolean {
  return planned > 1 && fired === 0;
}

/**
 * A schedule deals each kind of fault, and of kills and freezes each kind of program, as often as the others: so each of
 * these has to strike. Which fault comes to which wire is drawn, and most such pairs come once or not at all, so a wire has
 * to be struck by some fault.
 */
function whatNeverStruck(faults: Report['faults']): string[] {
  const onWires: Record<string, Count> = {};
  const never: string[] = [];
  for (const [kind, { fired, on }] of Object.entries(faults)) {
    if (fired === 0) never.push(`of kind ${kind} had an effect`);
    for (const [target, count] of Object.entries(on)) {
      if (isWireKind(kind)) add((onWires[target] ??= { planned: 0, fired: 0 }), count);
      else if (fired > 0 && isNeverStruck(count)) never.push(`of kind ${kind} had an effect on ${target}`);
    }
  }
  for (const [wire, count] of Object.entries(onWires)) {
    if (isNeverStruck(count)) never.push(`had an effect on the wire ${wire}`);
  }
  return never.map((what) => `vacuous: no fault ${what}`);
}

function add(sum: Count, { planned, fired }: Count): void {
  sum.planned += planned;
  sum.fired += fired;
}

/** What should have happened and did not: then a clean verdict says little. */
function vacuousBecause(
  { mustSee, minOrders, dupRate }: Schedule,
  faults: Report['faults'],
  paths: Report['paths'],
  orders: number,
  { injected, pooled }: Facts,
): string[] {
  return [
    ...whatNeverStruck(faults),
    ...mustSee.filter((path) => paths[path] === 0).map((path) => `vacuous: there were no ${path}`),
    ...(dupRate > 0 && injected === 0 ? ['vacuous: no duplicate was injected'] : []),
    // No transaction has more than some hundred orders in it.
    ...(pooled !== undefined && pooled < orders / 1_000
      ? [`vacuous: ${pooled} transactions went through the pooler`]
      : []),
    ...(orders < minOrders ? [`vacuous: ${orders} orders, fewer than ${minOrders}`] : []),
  ];
}

export function textOf(report: Report): string {
  const { recon, faults, paths, recoveryMs, restarts, absorbed, upperBound, environment } = report;
  const rows = (title: string, entries: [string, string | number][]): string[] => [
    '',
    title,
    ...entries.map(([name, value]) => `  ${name.padEnd(24)}${String(value).padStart(12)}`),
  ];
  const deltas = Object.entries(recon.deltas).map(([name, { count }]): [string, number] => [name, count]);
  return [
    ...rows(
      'faults, fired of planned',
      Object.entries(faults).map(([kind, { fired, planned, on }]) => [
        kind,
        `${fired} of ${planned}`.padStart(12) + onEach(on),
      ]),
    ),
    ...rows('paths that suppress', [...Object.entries(paths), ['injected duplicates', report.injectedDuplicates]]),
    ...(report.pooledTransactions === undefined
      ? []
      : rows('through the pooler', [['transactions', report.pooledTransactions]])),
    ...rows('restarts', Object.entries(restarts)),
    ...rows('counts', Object.entries(recon.counts)),
    ...rows('deltas', deltas),
    ...rows(
      'seconds',
      Object.entries(report.phasesMs).map(([phase, ms]) => [phase, (ms / 1_000).toFixed(1)]),
    ),
    '',
    ...(recoveryMs
      ? [`a successor could serve after ${recoveryMs.median} ms (median), ${recoveryMs.longest} ms (longest)`]
      : []),
    ...(absorbed === undefined
      ? []
      : [`${absorbed} records stood on the topic once more than they should, and changed nothing`]),
    ...(upperBound === undefined
      ? []
      : [
          `with 95 % confidence at most ${upperBound.toExponential(1)} of the intents that were answered are lost or doubled (3/N)`,
        ]),
    ...report.reasons.map((reason) => `NOT OK  ${reason}`),
    `commit ${report.commit}, node ${environment.node}, Postgres ${environment.postgres}, Kafka ${environment.kafka}, ${environment.cores} cores (${environment.cpu})`,
    report.command,
    report.ok ? `ok: ${recon.verdict}, seed ${report.seed}` : `failed: ${recon.verdict}, seed ${report.seed}`,
  ].join('\n');
}

/** Nothing where there is but one. */
function onEach(on: Record<string, Count>): string {
  const each = Object.entries(on).toSorted(([a], [b]) => (a < b ? -1 : 1));
  if (each.length < 2) return '';
  return `   ${each.map(([target, { fired, planned }]) => `${target} ${fired} of ${planned}`).join(', ')}`;
}
