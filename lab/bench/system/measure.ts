/** The whole path under one rate: from the intended time of a request to its answer, and from its commit to its effect. */
import { setTimeout as delay } from 'node:timers/promises';
import { runLoad } from '../children.ts';
import { coresBetween, readCpu, stolenShare, type CpuReading } from '../cpu.ts';
import { rounded } from '../measure.ts';
import { growthPerSecond, lags, type Lag, type Seen } from '../relay/lag.ts';
import { madeSegments } from '../server.ts';
import { bucketsOf, counterOf, percentileBetween, type Buckets } from '../relay/metrics.ts';
import type { Disturbable } from '../undisturbed.ts';
import { settleS } from './cases.ts';
import type { Stage } from './stage.ts';

export interface SystemRun extends Disturbable {
  rate: number;
  /** Of a request, from its intended time. */
  p50Ms: number;
  p99Ms: number;
  p999Ms: number;
  maxMs: number;
  /** Of all that were due, but for those whose connection the load generator cuts on purpose. */
  okShare: number;
  latenessP99Ms: number;
  /** From the commit of an order to the commit of its charge. */
  effectP50Ms: number;
  effectP99Ms: number;
  /** Of that, until the brokers have acknowledged it. */
  relayP50Ms: number;
  relayP99Ms: number;
  /** Committed and without an effect yet: how many messages more each second, and the worst of it. */
  lagGrowthPerSecond: number;
  highestLag: number;
  highestLagMs: number;
  /** Until all had its effect, after the last request. */
  drainedAfterS: number;
  /** Kept busy, by whom. */
  cores: Record<Who, number>;
  otherCores: number;
  /** Segments of the database's log that had to be made: a server that has lived for a while makes none. */
  newLogSegments: number;
  /** Measured too, and not counted, because the host stole too much of the time. */
  disturbed?: SystemRun[];
}

export type Who = 'orders' | 'relay' | 'payments' | 'postgres' | 'brokers' | 'load';

export interface Measured {
  run: SystemRun;
  /** Seconds since the beginning, messages without an effect, and the age of the oldest. */
  series: [second: number, messages: number, ageMs: number][];
}

export interface RateCall {
  rate: number;
  measuredS: number;
  seed: number;
  ledger: string;
  signal: AbortSignal;
}

/** A reading of what is cumulative. */
interface Mark {
  cpu: CpuReading<Who>;
  effect: Buckets;
  relayed: Buckets;
  logSegments: number;
}

const drainedWithinMs = 120_000;

export async function measureRate(
  stage: Stage,
  { rate, measuredS, seed, ledger, signal }: RateCall,
): Promise<Measured> {
  const marks: Promise<Mark>[] = [];
  const written: Seen[] = [];
  const done: Seen[] = [];
  const looks: Promise<void>[] = [];
  const look = async (): Promise<void> => {
    const [ofOrders, consumed] = await Promise.all([pageOf(stage.orders.admin), stage.payments.consumed()]);
    const atMs = performance.now();
    written.push({ atMs, count: counterOf(ofOrders, 'orders_idempotency_total', 'result="miss"') });
    done.push({ atMs, count: consumed });
  };
  const result = await runLoad({
    urls: [stage.orders.url],
    rate,
    warmupS: settleS,
    measuredS,
    seed,
    // Whoever is 2 s behind has failed already.
    args: ['--retry-rate=0.15', '--key-version=7', `--ledger=${ledger}`, '--settle=60', `--max-waiting=${2 * rate}`],
    signal,
    onSecond(second, load) {
      if (second >= settleS && second <= settleS + measuredS) looks.push(look());
      if (second === settleS || second === settleS + measuredS) marks.push(mark(stage, load));
    },
  });
  const endedAt = performance.now();
  await Promise.all(looks);
  await untilDrained(stage, look, () => written.at(-1)!.count - done.at(-1)!.count, signal);
  const drainedAfterS = (performance.now() - endedAt) / 1_000;
  const [before, after] = await Promise.all(marks);
  if (!before || !after) throw new Error(`the load generator ended after ${result.elapsedS} s, too early to measure`);
  const atLast = await mark(stage, 0);
  // Looks end in the order in which they were answered, which need not be that of their moments.
  const byTime = (a: Seen, b: Seen): number => a.atMs - b.atMs;
  const lag = lags(written.toSorted(byTime), done.toSorted(byTime)).slice(0, measuredS + 1);
  const run = summary({ rate, before, after, atLast, lag });
  const { p50Ms, p99Ms, p999Ms, maxMs } = result.latency.all;
  return {
    run: {
      ...run,
      p50Ms,
      p99Ms,
      p999Ms,
      maxMs,
      okShare: rounded(result.counts.ok / Math.max(1, result.counts.due - result.counts.cut), 6),
      latenessP99Ms: result.lateness.p99Ms,
      drainedAfterS: rounded(drainedAfterS, 1),
    },
    series: lag.map(({ atMs, rows, ageMs }) => [rounded((atMs - lag[0]!.atMs) / 1_000, 1), rows, ageMs]),
  };
}

type OfRequests = 'p50Ms' | 'p99Ms' | 'p999Ms' | 'maxMs' | 'okShare' | 'latenessP99Ms' | 'drainedAfterS';

function summary({
  rate,
  before,
  after,
  atLast,
  lag,
}: {
  rate: number;
  before: Mark;
  after: Mark;
  atLast: Mark;
  lag: readonly Lag[];
}): Omit<SystemRun, OfRequests> {
  const { others, ...cores } = coresBetween(before.cpu, after.cpu);
  // What is slowest counts too: until all had its effect.
  const ms = (of: 'effect' | 'relayed', share: number): number =>
    rounded(1_000 * (percentileBetween(before[of], atLast[of], share) ?? Infinity), 1);
  return {
    rate,
    effectP50Ms: ms('effect', 0.5),
    effectP99Ms: ms('effect', 0.99),
    relayP50Ms: ms('relayed', 0.5),
    relayP99Ms: ms('relayed', 0.99),
    lagGrowthPerSecond: rounded(growthPerSecond(lag), 1),
    highestLag: Math.max(0, ...lag.map(({ rows }) => rows)),
    highestLagMs: Math.max(0, ...lag.map(({ ageMs }) => ageMs)),
    cores: Object.fromEntries(
      Object.entries(cores).map(([who, share]) => [who, rounded(share, 3)]),
    ) as SystemRun['cores'],
    otherCores: rounded(others, 2),
    stolenShare: rounded(stolenShare(before.cpu, after.cpu), 5),
    newLogSegments: rounded(after.logSegments - before.logSegments, 1),
  };
}

async function mark({ world, orders, relay, payments, databases }: Stage, load: number): Promise<Mark> {
  const cpu = readCpu<Who>({
    orders: { pids: [orders.pid] },
    relay: { pids: [relay.pid] },
    payments: { pids: [payments.pid] },
    postgres: { pids: [world.postgres.pid], withChildren: true },
    brokers: { pids: world.kafka.brokers.map(({ pid }) => pid) },
    load: { pids: [load] },
  });
  const [ofPayments, ofRelay, logSegments] = await Promise.all([
    pageOf(payments.admin),
    pageOf(relay.admin!),
    madeSegments(databases.orders.client),
  ]);
  return {
    cpu,
    logSegments,
    effect: bucketsOf(ofPayments, 'payments_commit_to_effect_seconds'),
    relayed: bucketsOf(ofRelay, 'relay_append_to_broker_seconds'),
  };
}

async function pageOf(admin: string): Promise<string> {
  return (await fetch(`${admin}/metrics`)).text();
}

async function untilDrained(
  { payments, relay }: Stage,
  look: () => Promise<void>,
  left: () => number,
  signal: AbortSignal,
): Promise<void> {
  const deadline = performance.now() + drainedWithinMs;
  for (;;) {
    await look();
    if (left() <= 0) return;
    signal.throwIfAborted();
    if (performance.now() > deadline) {
      throw new Error(`${left()} messages had no effect. Payments: ${payments.said()} The relay: ${relay.said()}`);
    }
    await delay(100);
  }
}
