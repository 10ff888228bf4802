/** `npm run bench`: measures, and judges by bars. */
import { randomInt } from 'node:crypto';
import { join } from 'node:path';
import { EXIT, main, Refusal, type Context, type FlagSpecs } from '@twiceproof/program';
import { targets } from './bars.ts';
import { benchEdge } from './bench.ts';
import { caseNames, scales, type CaseName } from './cases.ts';
import { canReadCpu } from './cpu.ts';

const flags = {
  quick: { type: 'boolean', help: 'a tenth of the keys and shorter runs; under 5 minutes in all' },
  only: { type: 'string', help: `some of ${caseNames.join(', ')}, with commas between` },
  out: { type: 'string', help: 'directory for result.json and plot.svg; lab/results/edge[-quick], unless --only' },
  seed: { type: 'integer', min: 0, max: 4_294_967_295, help: 'otherwise a random one, which is printed' },
} as const satisfies FlagSpecs;

await main({
  name: 'bench',
  summary: 'Measures on servers of its own, in an open model, and exits with 1 when a bar is not reached.',
  commands: { edge: 'idempotency at the edge: throughput, latency, CPU, hot keys' },
  flags,
  run: bench,
});

async function bench({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  if (!canReadCpu) throw new Refusal('The cost of each process is read from /proc.', 'Run it on Linux.');
  const size = given.quick ? 'quick' : 'full';
  const only = given.only === undefined ? scales[size].cases : casesFrom(given.only);
  const seed = given.seed ?? randomInt(2 ** 32);
  const words = [given.quick ? '--quick' : '', given.only === undefined ? '' : `--only ${only.join(',')}`];
  const command = ['npm run bench -- edge', ...words, `--seed ${seed}`].filter((word) => word !== '').join(' ');
  // A part must not take the place of the whole.
  const directory = given.out ?? (given.only === undefined ? resultsOf(size) : undefined);
  return benchEdge({ command, scale: scales[size], only, seed, targets, directory }, output, signal);
}

function resultsOf(size: keyof typeof scales): string {
  return join(import.meta.dirname, '../results', size === 'quick' ? 'edge-quick' : 'edge');
}

function casesFrom(text: string): CaseName[] {
  const wanted = text.split(',').map((word) => word.trim());
  const unknown = wanted.filter((word) => !caseNames.some((name) => name === word));
  if (unknown.length === 0) return caseNames.filter((name) => wanted.includes(name));
  throw new Refusal(`There is no case ${unknown.join(', ')}.`, `There is ${caseNames.join(', ')}.`, EXIT.usage);
}
