/** Measures, judges, reports: everything of `npm run bench -- edge` but its flags. */
import { EXIT, type Output } from '@twiceproof/program';
import { judge, type Targets } from './bars.ts';
import { estimatedS, type CaseName, type Scale } from './cases.ts';
import { runEdge } from './edge.ts';
import { reportText } from './report.ts';
import { begin, edgeResult, writeEdge } from './result.ts';

export interface BenchCall {
  /** That repeats it. */
  command: string;
  scale: Scale;
  only: readonly CaseName[];
  seed: number;
  targets: Targets;
  /** Where the result goes; nowhere without one. */
  directory: string | undefined;
}

/** Answers the exit code. */
export async function benchEdge(call: BenchCall, output: Output, signal: AbortSignal): Promise<number> {
  const { scale, only, seed, directory } = call;
  const minutes = (estimatedS(scale, only) / 60).toFixed(1);
  output.progress(`bench: ${only.join(', ')}; ${scale.rounds} rounds, about ${minutes} minutes, seed ${seed}`);
  const began = begin();
  const measured = await runEdge({ scale, only, seed, signal, progress: output.progress }).catch((error: unknown) => {
    if (!signal.aborted) throw error;
    return undefined;
  });
  if (!measured) {
    output.progress('bench: interrupted; nothing is written');
    return EXIT.failed;
  }
  const result = edgeResult(began, call, measured, judge(measured.rounds, call.targets));
  if (directory !== undefined) writeEdge(directory, result);
  output.emit({ result });
  output.say(reportText(result));
  if (directory !== undefined) output.say(`written to ${directory}`);
  return result.pass ? EXIT.ok : EXIT.failed;
}
