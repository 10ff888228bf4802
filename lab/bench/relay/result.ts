/** What the relay's bench leaves behind. */
import { medianOf, type Bar } from '../bars.ts';
import type { Environment } from '../../shared/origin.ts';
import { outcomeOf, writeFiles, type Began, type Outcome } from '../result.ts';
import { serverSettings } from '../server.ts';
import type { RelayScale } from './cases.ts';
import { plotRelay } from './plot.ts';
import type { RelayRound, RelayRounds } from './relay.ts';

export interface RelayResult extends Outcome {
  environment: Environment & {
    postgres: string;
    kafka: string;
    postgresSettings: Readonly<Record<string, string>>;
  };
  scale: RelayScale;
  /** Of each number of the rounds. */
  median: RelayRound;
  rounds: RelayRound[];
  held: RelayRounds['held'];
  series: RelayRounds['series'];
}

export function relayResult(
  began: Began,
  call: { command: string; seed: number; scale: RelayScale },
  { rounds, series, held, versions }: RelayRounds,
  bars: Bar[],
): RelayResult {
  return {
    ...outcomeOf(began, call, bars),
    environment: { ...began.environment, ...versions, postgresSettings: serverSettings },
    scale: call.scale,
    median: medianOf(rounds),
    rounds,
    held,
    series,
  };
}

/** `result.json` and `plot.svg`. */
export function writeRelay(directory: string, result: RelayResult): void {
  writeFiles(directory, result, plotRelay(result));
}
