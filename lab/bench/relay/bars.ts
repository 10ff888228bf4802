/** What is demanded of the relay, and whether it was reached. */
import { judgeBy, ratio, type Bar, type Demand } from '../bars.ts';
import { largeBatches, type RelayScale } from './cases.ts';
import type { DrainRun } from './drain.ts';
import type { RelayRound } from './relay.ts';
import { burstFactors, flatness, steadyRates } from './steady.ts';

export interface RelayTargets {
  /** Throughput over that of the ceiling, with the same batch size. */
  overCeiling: number;
  /** Postgres CPU for each message, over that of the textbook relay. */
  overTextbookCpu: number;
  /** Throughput over that of the peer, by the better of its listeners. */
  overPeer: number;
  p50Ms: number;
  p99Ms: number;
  /** Of the rate that is written, so fast may the lag grow and be called flat. */
  growthShare: number;
  /**
   * From the end of a burst until the lag is flat again, in lengths of the burst, for each time that the burst is the
   * limit: a burst of three times the limit leaves three times as many rows, and writers take a part of the machine.
   */
  flatAfterBurstsPerFold: number;
}

export const relayTargets: RelayTargets = {
  overCeiling: 0.6,
  overTextbookCpu: 1 / 3,
  overPeer: 10,
  p50Ms: 20,
  p99Ms: 60,
  growthShare: 0.01,
  flatAfterBurstsPerFold: 3,
};

/** The bars whose cases were run. */
export function judgeRelay(
  rounds: readonly RelayRound[],
  { batches, batch }: Pick<RelayScale, 'batches' | 'batch'>,
  targets: RelayTargets = relayTargets,
): Bar[] {
  const sizes = largeBatches({ batches, batch });
  const best = ({ drain }: RelayRound) => drain[`1x${batch}`];
  const bar = { kind: 'bar' } as const;
  const latency = ({ steady }: RelayRound) => steady?.latency[steadyRates.latency];
  const demands: Demand<RelayRound>[] = [
    ...batches.map((size) => ({
      ...bar,
      name: `throughput over that of the ceiling, batches of ${size}`,
      of: ({ drain, ceiling }: RelayRound) => ratio(drain[`1x${size}`]?.perSecond, ceiling[size]?.perSecond),
      atLeast: targets.overCeiling,
    })),
    {
      ...bar,
      name: 'Postgres CPU for each message over that of the textbook relay, each with its better batches',
      of: ({ drain, textbook }) =>
        ratio(least(sizes.map((size) => drain[`1x${size}`])), least(Object.values(textbook))),
      below: rounded(targets.overTextbookCpu),
    },
    {
      ...bar,
      name: 'throughput over that of the peer (the better listener)',
      of: (round) => {
        const rates = Object.values(round.peer).map(({ perSecond }) => perSecond);
        return rates.length === 0 ? undefined : ratio(best(round)?.perSecond, Math.max(...rates));
      },
      atLeast: targets.overPeer,
    },
    {
      ...bar,
      name: `commit to broker at ${steadyRates.latency} rows/s: p50, ms`,
      of: (round) => latency(round)?.appendedP50Ms,
      below: targets.p50Ms,
    },
    {
      ...bar,
      name: `commit to broker at ${steadyRates.latency} rows/s: p99, ms`,
      of: (round) => latency(round)?.appendedP99Ms,
      below: targets.p99Ms,
    },
    {
      ...bar,
      name: `lag at ${steadyRates.flat} rows/s: growth, rows/s`,
      of: ({ steady }) => steady?.flat.growthPerSecond,
      below: targets.growthShare * steadyRates.flat,
    },
    {
      ...bar,
      name: `lag at ${steadyRates.flat} rows/s: highest age, ms`,
      of: ({ steady }) => steady?.flat.highestAgeMs,
      below: flatness.ageMs,
    },
    ...burstFactors.map((factor) => ({
      ...bar,
      name: `flat again after a burst of ${factor} times the limit, in lengths of the burst`,
      of: ({ steady }: RelayRound) => steady?.bursts[factor]?.flatAfterBursts,
      below: targets.flatAfterBurstsPerFold * factor,
    })),
    { ...bar, name: 'rows that did not arrive', of: ({ steady }) => steady?.missing, none: true },
  ];
  return judgeBy(demands, rounds);
}

function rounded(value: number): number {
  return Math.round(1_000 * value) / 1_000;
}

function least(runs: readonly (DrainRun | undefined)[]): number | undefined {
  const costs = runs.flatMap((run) => (run ? [run.cpuUs.postgres] : []));
  return costs.length === 0 ? undefined : Math.min(...costs);
}
