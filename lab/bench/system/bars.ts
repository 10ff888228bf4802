/** What is demanded of the whole system, and whether it was reached. */
import { judgeBy, type Bar, type Demand } from '../bars.ts';
import { aimedRate, promisedRate } from './cases.ts';
import type { SystemRun } from './measure.ts';
import type { Judged, SystemRound } from './system.ts';

export interface SystemTargets {
  p99Ms: number;
  effectP99Ms: number;
  /** Of the rate, by which the lag may grow. */
  lagGrowth: number;
  okShare: number;
}

export const systemTargets: SystemTargets = { p99Ms: 25, effectP99Ms: 250, lagGrowth: 0.01, okShare: 0.9999 };

export function judgeSystem(
  rounds: readonly SystemRound[],
  recon: Judged,
  targets: SystemTargets = systemTargets,
): Bar[] {
  const at = (
    rate: number,
    kind: Bar['kind'],
    of: (round: SystemRound) => SystemRun | undefined,
  ): Demand<SystemRound>[] => [
    { kind, name: `POST /orders at ${rate} requests/s: p99, ms`, of: (r) => of(r)?.p99Ms, below: targets.p99Ms },
    {
      kind,
      name: `commit to effect at ${rate} requests/s: p99, ms`,
      of: (round) => of(round)?.effectP99Ms,
      below: targets.effectP99Ms,
    },
    {
      kind,
      name: `growth of the lag at ${rate} requests/s, messages/s`,
      of: (round) => of(round)?.lagGrowthPerSecond,
      below: rate * targets.lagGrowth,
    },
    { kind, name: `share answered 2xx at ${rate} requests/s`, of: (r) => of(r)?.okShare, atLeast: targets.okShare },
  ];
  const bars = judgeBy(
    [
      ...at(promisedRate, 'bar', ({ promised }) => promised),
      ...at(aimedRate, 'aim', ({ ladder }) => ladder[aimedRate]),
    ],
    rounds,
  );
  const wrong = Object.values(recon.deltas).reduce((sum, count) => sum + count, recon.verdict === 'undecided' ? 1 : 0);
  return [
    ...bars,
    {
      name: 'what the reconciler found wrong, or could not decide',
      kind: 'bar',
      values: [wrong],
      value: wrong,
      target: 'none',
      pass: wrong === 0 && recon.verdict === 'clean',
    },
  ];
}

/** All that is demanded of the promised rate, at this one. */
export function holds(run: SystemRun, targets: SystemTargets = systemTargets): boolean {
  return run.p99Ms < targets.p99Ms && keepsUp(run, targets);
}

/** Whatever a request has to wait: nothing gathers, and effects come in time. */
export function keepsUp(run: SystemRun, targets: SystemTargets = systemTargets): boolean {
  return (
    run.effectP99Ms < targets.effectP99Ms &&
    run.lagGrowthPerSecond < run.rate * targets.lagGrowth &&
    run.okShare >= targets.okShare
  );
}

/** The highest rate up to which, from the lowest, every one does. */
export function highest(runs: readonly SystemRun[], does: (run: SystemRun) => boolean): number {
  const rising = runs.toSorted((a, b) => a.rate - b.rate);
  const first = rising.findIndex((run) => !does(run));
  return (first === -1 ? rising.at(-1) : rising[first - 1])?.rate ?? 0;
}
