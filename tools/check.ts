// `npm run check`: everything that can be said about the code without running it.
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
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

const help = `Usage: npm run check [-- step ...]

Runs every step, or only those that are named:
${steps.map(({ name, what }) => `  ${name.padEnd(10)}${what}`).join('\n')}

Exit codes: 0 all is well, 1 a step failed, 2 wrong usage.`;

process.exitCode = await main(process.argv.slice(2));

async function main(args: string[]): Promise<number> {
  if (args.includes('--help') || args.includes('-h')) {
    console.log(help);
    return 0;
  }
  const { chosen, unknown } = chooseSteps(steps, args);
  if (unknown.length > 0) {
    console.error(`There is no step ${unknown.map((name) => `"${name}"`).join(', ')}.\n\n${help}`);
    return 2;
  }
  const started = performance.now();
  const results = await runSteps(chosen, {
    cwd: join(import.meta.dirname, '..'),
    atOnce: Math.max(2, Math.min(4, availableParallelism())),
    onEnd: printLine,
  });
  for (const result of results) printDetails(result);
  const failed = results.filter(({ ok }) => !ok).map(({ step }) => step.name);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(
    failed.length === 0 ? `check: all well in ${seconds} s` : `check: ${failed.join(', ')} failed in ${seconds} s`,
  );
  return failed.length === 0 ? 0 : 1;
}

function printLine({ step, ok, seconds }: StepResult): void {
  console.log(`${ok ? 'ok    ' : 'FAILED'}  ${step.name.padEnd(10)}${seconds.toFixed(1).padStart(5)} s`);
}

/** All of it for a step that failed; of one that passed only the signals, which are there to be seen. */
function printDetails({ step, ok, output }: StepResult): void {
  const shown = ok
    ? output
        .split('\n')
        .filter((line) => line.startsWith('signal '))
        .join('\n')
    : output.trimEnd();
  if (shown !== '') console.log(`\n--- ${step.name}\n${shown}\n`);
}
