/** Measures, judges, reports: everything of `npm run bench -- inbox` but its flags. */
import { EXIT, type Output } from '@twiceproof/program';
import { begin } from '../result.ts';
import { judgeInbox, type InboxTargets } from './bars.ts';
import { estimatedS, type CaseName, type InboxScale } from './cases.ts';
import { runInbox, type InboxRounds } from './inbox.ts';
import { inboxReport } from './report.ts';
import { inboxResult, writeInbox } from './result.ts';

export interface InboxBenchCall {
  /** That repeats it. */
  command: string;
  scale: InboxScale;
  only: readonly CaseName[];
  seed: number;
  targets: InboxTargets;
  /** Where the result goes; nowhere without one. */
  directory: string | undefined;
}

/** Answers the exit code. */
export async function benchInbox(call: InboxBenchCall, output: Output, signal: AbortSignal): Promise<number> {
  const { scale, only, seed } = call;
  const minutes = (estimatedS(scale, only) / 60).toFixed(1);
  output.progress(`bench: ${only.join(', ')}; ${scale.rounds} rounds, about ${minutes} minutes, seed ${seed}`);
  return measureAndJudge(call, output, signal, async () =>
    runInbox({ scale, only, seed, signal, progress: output.progress }),
  );
}

export async function measureAndJudge(
  call: Omit<InboxBenchCall, 'only'>,
  output: Output,
  signal: AbortSignal,
  measure: () => Promise<InboxRounds>,
): Promise<number> {
  const { scale, targets, directory } = call;
  const began = begin();
  const measured = await measure().catch((error: unknown) => {
    if (!signal.aborted) throw error;
    return undefined;
  });
  if (!measured) {
    output.progress('bench: interrupted; nothing is written');
    return EXIT.failed;
  }
  const result = inboxResult(began, call, measured, judgeInbox(measured.rounds, scale, targets));
  if (directory !== undefined) writeInbox(directory, result);
  output.emit({ result });
  output.say(inboxReport(result));
  if (directory !== undefined) output.say(`written to ${directory}`);
  return result.pass ? EXIT.ok : EXIT.failed;
}
