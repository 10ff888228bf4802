// `npm run check`: everything that can be said about the code without running it.
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { EXIT, main, Refusal, type Context, type FlagSpecs, type Output } from '@twiceproof/program';
import { chooseSteps, runSteps } from './check/run.ts';
import type { Step, StepResult } from './check/run.ts';

// The longest comes first, so that the others fit beside it.
const steps: readonly Step[] = [
  {
    name: 'package',
    what: 'exports of the packed package: publint, attw, an empty project',
    command: ['tools/package.ts'],
  },
  {
    name: 'format',
    what: 'prettier',
    command: ['node_modules/prettier/bin/prettier.cjs', '--check', '--log-level=warn', '.'],
  },
  { name: 'lint', what: 'oxlint, with types', command: ['node_modules/oxlint/bin/oxlint'] },
  { name: 'types', what: 'tsc', command: ['node_modules/typescript/bin/tsc'] },
  { name: 'tidy', what: 'rooms and imports, leftovers, links, pages against tables', command: ['tools/tidy.ts'] },
];

await main({
  name: 'check',
  summary: `Everything that can be said about the code without running it. Runs every step, or only those that are named:
${steps.map(({ name, what }) => `  ${name.padEnd(10)}${what}`).join('\n')}`,
  words: '[step ...]',
  flags: {},
  run: check,
});

async function check({ words, output }: Context<FlagSpecs>): Promise<number> {
  const { chosen, unknown } = chooseSteps(steps, words);
  if (unknown.length > 0) {
    const known = steps.map(({ name }) => name).join(', ');
    throw new Refusal(
      `There is no step ${unknown.map((name) => `"${name}"`).join(', ')}.`,
      `There is ${known}.`,
      EXIT.usage,
    );
  }
  const started = performance.now();
  const results = await runSteps(chosen, {
    cwd: join(import.meta.dirname, '..'),
    atOnce: Math.max(2, Math.min(4, availableParallelism())),
    onEnd: ({ step, ok, seconds, output: printed }) => {
      output.say(`${ok ? 'ok    ' : 'FAILED'}  ${step.name.padEnd(10)}${seconds.toFixed(1).padStart(5)} s`);
      output.emit({ step: step.name, ok, seconds, ...(!ok && { output: printed }) });
    },
  });
  for (const result of results) sayDetails(result, output);
  const failed = results.filter(({ ok }) => !ok).map(({ step }) => step.name);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  output.say(
    failed.length === 0 ? `check: all well in ${seconds} s` : `check: ${failed.join(', ')} failed in ${seconds} s`,
  );
  return failed.length === 0 ? EXIT.ok : EXIT.failed;
}

/** All of it for a step that failed; of one that passed only the signals, which are there to be seen. */
function sayDetails({ step, ok, output: printed }: StepResult, output: Output): void {
  const shown = ok
    ? printed
        .split('\n')
        .filter((line) => line.startsWith('signal '))
        .join('\n')
    : printed.trimEnd();
  if (shown !== '') output.say(`\n--- ${step.name}\n${shown}\n`);
}
