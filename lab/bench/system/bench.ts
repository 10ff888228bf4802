/** Measures, judges, reports: everything of `npm run bench -- system` but its flags. */
import { EXIT, type Output } from '@twiceproof/program';
import { begin } from '../result.ts';
import { judgeSystem, type SystemTargets } from './bars.ts';
import { estimatedS, type SystemScale } from './cases.ts';
import { systemReport } from './report.ts';
import { systemResult, writeSystem } from './result.ts';
import { runSystem } from './system.ts';

export interface SystemBenchCall {
  /** That repeats it. */
  command: string;
  scale: SystemScale;
  seed: number;
  targets: SystemTargets;
  /** Where the result goes; nowhere without one. */
  directory: string | undefined;
}

/** Answers the exit code. */
export async function benchSystem(call: SystemBenchCall, output: Output, signal: AbortSignal): Promise<number> {
  const { scale, seed, targets, directory } = call;
  const minutes = (estimatedS(scale) / 60).toFixed(1);
  output.progress(`bench: the whole system; ${scale.rounds} rounds, about ${minutes} minutes, seed ${seed}`);
  const began = begin();
  const measured = await runSystem({ scale, seed, signal, progress: output.progress }).catch((error: unknown) => {
    if (!signal.aborted) throw error;
    return undefined;
  });
  if (!measured) {
    output.progress('bench: interrupted; nothing is written');
    return EXIT.failed;
  }
  const result = systemResult(began, call, measured, judgeSystem(measured.rounds, measured.recon, targets));
  if (directory !== undefined) writeSystem(directory, result);
  output.emit({ result });
  output.say(systemReport(result));
  if (directory !== undefined) output.say(`written to ${directory}`);
  return result.pass ? EXIT.ok : EXIT.failed;
}
