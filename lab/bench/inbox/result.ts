/** What the bench of the inbox leaves behind. */
import { medianOf, type Bar } from '../bars.ts';
import type { Environment } from '../../shared/origin.ts';
import { outcomeOf, writeFiles, type Began, type Outcome } from '../result.ts';
import { serverSettings } from '../server.ts';
import type { InboxScale } from './cases.ts';
import type { InboxRound, InboxRounds } from './inbox.ts';
import { plotInbox } from './plot.ts';

export interface InboxResult extends Outcome {
  environment: Environment & {
    postgres: string;
    kafka?: string;
    postgresSettings: Readonly<Record<string, string>>;
  };
  scale: InboxScale;
  /** Of each number of the rounds. */
  median: InboxRound;
  rounds: InboxRound[];
}

export function inboxResult(
  began: Began,
  call: { command: string; seed: number; scale: InboxScale },
  { rounds, versions }: InboxRounds,
  bars: Bar[],
): InboxResult {
  return {
    ...outcomeOf(began, call, bars),
    environment: { ...began.environment, ...versions, postgresSettings: serverSettings },
    scale: call.scale,
    median: medianOf(rounds),
    rounds,
  };
}

/** `result.json` and `plot.svg`. */
export function writeInbox(directory: string, result: InboxResult): void {
  writeFiles(directory, result, plotInbox(result));
}
