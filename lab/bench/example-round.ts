/** Figures of a round as they might be, for the tests of what is made from them. */
import type { EdgeRun, HotRun, Round } from './edge.ts';
import type { Latency } from './measure.ts';

export interface Changed {
  group?: number;
  p99Ms?: number;
  okShare?: number;
  deadlocks?: number;
  serializationFailures?: number;
  differentAnswers?: number;
}

export function exampleRound(changed: Changed = {}): Round {
  const { group = 8_000, p99Ms = 12, okShare = 1, deadlocks = 0, serializationFailures = 0 } = changed;
  const server = { deadlocks, serializationFailures, errors: {}, sweptKeysPerSecond: 1_500 };
  const cost = { cpuUs: { orders: 100, postgres: 50, load: 25 }, otherCores: 0.05, stolenShare: 0.001 };
  const latency = (rate: number, high: number): Latency => ({
    rate,
    p50Ms: 3,
    p99Ms: high,
    p999Ms: 2 * high,
    maxMs: 3 * high,
    okShare,
    latenessP99Ms: 1,
    ...cost,
  });
  const run = (okPerSecond: number, latencies: Record<string, Latency>): EdgeRun => ({
    throughput: { offered: 25_000, okPerSecond, errors: 0, ...cost },
    latency: latencies,
    server,
  });
  const hot = (rate: number): HotRun => ({
    rate,
    okShare: 1,
    hot: { count: 3_000, p50Ms: 2, p99Ms: 20, p999Ms: 40 },
    cold: { count: 6_000, p50Ms: 3, p99Ms: 18, p999Ms: 30 },
    repeatedShare: 0.8,
    comparedAnswers: 7_000,
    differentAnswers: rate === 500 ? 0 : (changed.differentAnswers ?? 0),
    ...cost,
    server: rate === 500 ? { ...server, deadlocks: 0, serializationFailures: 0 } : server,
  });
  const claim = { p50Ms: 3, p99Ms: 9, repeatedShare: 0.6 };
  return {
    edge: {
      'no-database': run(10_000, { 5000: latency(5_000, 5) }),
      'plain-insert': run(3_000, { own: latency(2_100, 9) }),
      'outbox-only': run(1_500, { own: latency(1_000, 11) }),
      handler: run(1_100, { own: latency(800, 15) }),
      group: run(group, { 5000: latency(5_000, p99Ms), 10000: latency(10_000, 24) }),
    },
    hot: { 'hot-handler': hot(500), 'hot-group': hot(2_500) },
    claims: {
      onConflict: { claimsPerSecond: 4_000, cpuUs: 200, ...claim },
      advisoryLock: { claimsPerSecond: 3_000, cpuUs: 260, ...claim },
    },
  };
}
