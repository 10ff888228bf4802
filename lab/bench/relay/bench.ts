/** Measures, judges, reports: everything of `npm run bench -- relay` but its flags. */
import { EXIT, type Output } from '@twiceproof/program';
import { begin } from '../result.ts';
import { judgeRelay, type RelayTargets } from './bars.ts';
import { estimatedS, type CaseName, type RelayScale } from './cases.ts';
import { runRelay } from './relay.ts';
import { relayReport } from './report.ts';
import { relayResult, writeRelay } from './result.ts';

export interface RelayBenchCall {
  /** That repeats it. */
  command: string;
  scale: RelayScale;
  only: readonly CaseName[];
  seed: number;
  targets: RelayTargets;
  /** Where the result goes; nowhere without one. */
  directory: string | undefined;
}

/** Answers the exit code. */
export async function benchRelay(call: RelayBenchCall, output: Output, signal: AbortSignal): Promise<number> {
  const { scale, only, seed, targets, directory } = call;
  const minutes = (estimatedS(scale, only) / 60).toFixed(1);
  output.progress(`bench: ${only.join(', ')}; ${scale.rounds} rounds, about ${minutes} minutes, seed ${seed}`);
  const began = begin();
  const measured = await runRelay({ scale, only, seed, signal, progress: output.progress }).catch((error: unknown) => {
    if (!signal.aborted) throw error;
    return undefined;
  });
  if (!measured) {
    output.progress('bench: interrupted; nothing is written');
    return EXIT.failed;
  }
  const result = relayResult(began, call, measured, judgeRelay(measured.rounds, scale, targets));
  if (directory !== undefined) writeRelay(directory, result);
  output.emit({ result });
  output.say(relayReport(result));
  if (directory !== undefined) output.say(`written to ${directory}`);
  return result.pass ? EXIT.ok : EXIT.failed;
}
