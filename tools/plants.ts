// `npm run plants`: does anybody notice? Plants the bugs of lab/plants, one at a time and each in a
// copy of the tree, and demands that exactly the tests turn red which the plant names.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { Verdict } from './plants/judge.ts';
import { isCalled, parsePlant } from './plants/plant.ts';
import type { Plant } from './plants/plant.ts';
import { tryPlant } from './plants/run.ts';

const root = join(import.meta.dirname, '..');
const folder = 'lab/plants';

const help = `Usage: npm run plants [-- options] [name ...]

Plants the bugs of ${folder}, or only the named ones ("3", "03-name" or "name"), each in a copy of
the tree, and runs the test file that must notice it.

  --list   names and sentences, nothing is run
  --json   one JSON object for each plant, one on a line
  --help

A plant is a file NN-name.patch: a sentence that says what the bug is, a line "Test: path/of/file.test.ts",
one or more lines "Fails: name of a test" (or "suite > test", or /a regular expression/), then a unified diff.

Exit codes: 0 every bug was noticed, 1 one was not, 2 wrong usage, 130 interrupted.`;

type Found = { name: string; plant: Plant } | { name: string; problems: string[] };

process.exitCode = await main();

async function main(): Promise<number> {
  const asked = readArguments();
  if ('problem' in asked) return refuse(asked.problem);
  const { flags, names } = asked;
  if (flags.help) {
    console.log(help);
    return 0;
  }
  const all = findPlants();
  const unknown = names.filter((name) => !all.some((found) => isCalled(found.name, name)));
  if (unknown.length > 0) return refuse(`There is no plant ${unknown.join(', ')} in ${folder}.`);
  const chosen = all.filter((found) => names.length === 0 || names.some((name) => isCalled(found.name, name)));
  if (!flags.list) return runAll(chosen, flags.json);
  for (const found of chosen) console.log('plant' in found ? `${found.name}: ${found.plant.what}` : found.name);
  return 0;
}

function readArguments() {
  const flag = { type: 'boolean', default: false } as const;
  try {
    const options = { list: flag, json: flag, help: flag };
    const { values, positionals } = parseArgs({ options, allowPositionals: true });
    return { flags: values, names: positionals };
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error) };
  }
}

function refuse(problem: string): number {
  console.error(`${problem}\n\n${help}`);
  return 2;
}

function findPlants(): Found[] {
  if (!existsSync(join(root, folder))) return [];
  const files = readdirSync(join(root, folder)).filter((file) => file.endsWith('.patch'));
  return files.toSorted().map((file) => {
    const name = file.slice(0, -'.patch'.length);
    const plant = parsePlant(name, readFileSync(join(root, folder, file), 'utf8'));
    return 'problems' in plant ? { name, problems: plant.problems } : { name, plant };
  });
}

async function runAll(chosen: readonly Found[], json: boolean): Promise<number> {
  const interruption = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, () => interruption.abort());
  let unnoticed = 0;
  for (const found of chosen) {
    const started = performance.now();
    const verdict = await verdictOn(found, interruption.signal);
    if (interruption.signal.aborted) return 130;
    if (!verdict.ok) unnoticed += 1;
    print(found.name, verdict, (performance.now() - started) / 1000, json);
  }
  if (!json) console.log(`plants: ${chosen.length - unnoticed} of ${chosen.length} noticed`);
  return unnoticed === 0 ? 0 : 1;
}

function verdictOn(found: Found, signal: AbortSignal): Promise<Verdict> | Verdict {
  if ('plant' in found) return tryPlant(root, found.plant, { signal });
  return { ok: false, reason: 'is not a plant', details: found.problems.join('\n') };
}

function print(name: string, { ok, reason, details }: Verdict, seconds: number, json: boolean): void {
  if (json) return console.log(JSON.stringify({ plant: name, ok, reason, details, seconds }));
  console.log(`${ok ? 'ok    ' : 'FAILED'}  ${name}  ${seconds.toFixed(1)} s  ${reason}`);
  if (details !== '') console.log(details.trimEnd().replace(/^/gm, '        '));
}
