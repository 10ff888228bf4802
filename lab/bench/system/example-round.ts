/** Figures of a round of the whole system as they might be, for the tests of what is made from them. */
import type { SystemRun } from './measure.ts';
import type { Judged, SystemRound } from './system.ts';

export function exampleRun(rate: number, changed: Partial<SystemRun> = {}): SystemRun {
  return {
    rate,
    p50Ms: 4,
    p99Ms: 20,
    p999Ms: 40,
    maxMs: 60,
    okShare: 1,
    latenessP99Ms: 2,
    effectP50Ms: 40,
    effectP99Ms: 120,
    relayP50Ms: 20,
    relayP99Ms: 60,
    lagGrowthPerSecond: 0.4,
    highestLag: 600,
    highestLagMs: 110,
    drainedAfterS: 0.4,
    cores: { orders: 0.5, relay: 0.1, payments: 0.2, postgres: 0.4, brokers: 0.3, load: 0.2 },
    otherCores: 0.05,
    stolenShare: 0.001,
    newLogSegments: 0,
    ...changed,
  };
}

export function exampleSystemRound(changed: Partial<SystemRun> = {}): SystemRound {
  return {
    promised: exampleRun(5_000, changed),
    ladder: {
      1000: exampleRun(1_000),
      7000: exampleRun(7_000, { p99Ms: 80 }),
      10000: exampleRun(10_000, { p99Ms: 900, effectP99Ms: 800 }),
    },
  };
}

export const cleanRecon: Judged = {
  verdict: 'clean',
  counts: { orders: 90_000 },
  deltas: {},
  reasons: [],
  tookMs: 12_000,
};
