/** Figures of a round of the relay as they might be, for the tests of what is made from them. */
import type { DrainRun } from './drain.ts';
import type { RelayRound } from './relay.ts';
import type { Burst, SteadyLatency } from './steady.ts';

export interface Changed {
  relay?: number;
  postgresUs?: number;
  polling?: number;
  replication?: number;
  p50Ms?: number;
  p99Ms?: number;
  growth?: number;
  ageMs?: number;
  flatAfterBursts?: number;
  missing?: number;
}

export function exampleRelayRound(changed: Changed = {}): RelayRound {
  const { relay = 20_000, postgresUs = 5, polling = 300, replication = 200, p50Ms = 14, p99Ms = 40 } = changed;
  const run = (perSecond: number, postgres: number): DrainRun => ({
    perSecond,
    rows: 90_000,
    cpuUs: { relay: 30, postgres, brokers: 20 },
    walBytes: 1,
    deadTuples: 7,
    otherCores: 0.05,
  });
  const latency: SteadyLatency = {
    p50Ms: 2 * p50Ms,
    p99Ms: 2 * p99Ms,
    maxMs: 4 * p99Ms,
    appendedP50Ms: p50Ms,
    appendedP99Ms: p99Ms,
    ownP50Ms: 13,
    ownP99Ms: 39,
    cpuUs: { relay: 50, postgres: 60, brokers: 90 },
  };
  const burst = (factor: number): Burst => ({
    wantedPerSecond: 20_000 * factor,
    writtenPerSecond: 19_000 * factor,
    highestRows: 20_000,
    highestAgeMs: 900,
    flatAfterS: 2,
    flatAfterBursts: changed.flatAfterBursts ?? 2.7,
  });
  return {
    ceiling: { 200: run(15_000, 0), 1000: run(30_000, 0) },
    drain: { '1x200': run(10_000, 8), '1x1000': run(relay, postgresUs) },
    textbook: { 1000: run(6_000, 20) },
    peer: { polling: run(polling, 900), replication: run(replication, 800) },
    steady: {
      latency: { 1000: latency, 5000: latency },
      flat: { growthPerSecond: changed.growth ?? -3, highestRows: 400, highestAgeMs: changed.ageMs ?? 80 },
      bursts: { 2: burst(2), 3: burst(3) },
      missing: changed.missing ?? 0,
      duplicates: 0,
      writerLatenessP99Ms: 2,
      otherCores: 0.05,
      stolenShare: 0.001,
    },
  };
}
