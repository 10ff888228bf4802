/** What the bench of the whole system leaves behind. */
import type { Environment } from '../../shared/origin.ts';
import { medianOf, type Bar } from '../bars.ts';
import { outcomeOf, writeFiles, type Began, type Outcome } from '../result.ts';
import { serverSettings } from '../server.ts';
import { highest, holds, keepsUp } from './bars.ts';
import type { SystemScale } from './cases.ts';
import { plotSystem } from './plot.ts';
import type { SystemRound, SystemRounds } from './system.ts';

export interface SystemResult extends Outcome {
  environment: Environment & { postgres: string; kafka: string; postgresSettings: Readonly<Record<string, string>> };
  scale: SystemScale;
  /** Requests a second, of the medians: at which every bar is reached, and at which at least nothing gathers. */
  highestRate: { holds: number; keepsUp: number };
  recon: SystemRounds['recon'];
  /** Of each number of the rounds. */
  median: SystemRound;
  rounds: SystemRound[];
  series: SystemRounds['series'];
}

export function systemResult(
  began: Began,
  call: { command: string; seed: number; scale: SystemScale },
  { rounds, series, recon, versions }: SystemRounds,
  bars: Bar[],
): SystemResult {
  const median = medianOf(rounds);
  const runs = [median.promised, ...Object.values(median.ladder)];
  return {
    ...outcomeOf(began, call, bars),
    environment: { ...began.environment, ...versions, postgresSettings: serverSettings },
    scale: call.scale,
    highestRate: { holds: highest(runs, holds), keepsUp: highest(runs, keepsUp) },
    recon,
    median,
    rounds,
    series,
  };
}

/** `result.json` and `plot.svg`. */
export function writeSystem(directory: string, result: SystemResult): void {
  writeFiles(directory, result, plotSystem(result));
}
