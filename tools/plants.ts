// `npm run plants`: does anybody notice? Plants the bugs of lab/plants, one at a time and each in a
// copy of the tree, and demands that exactly the tests turn red which the plant names.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { EXIT, main, Refusal, type FlagSpecs, type Output } from '@twiceproof/program';
import type { Verdict } from './plants/judge.ts';
import { isCalled, parsePlant } from './plants/plant.ts';
import type { Plant } from './plants/plant.ts';
import { tryPlant } from './plants/run.ts';

const root = join(import.meta.dirname, '..');
const folder = 'lab/plants';

const flags = { list: { type: 'boolean', help: 'names and sentences; nothing is run' } } as const satisfies FlagSpecs;

type Found = { name: string; plant: Plant } | { name: string; problems: string[] };

await main({
  name: 'plants',
  summary: `Plants the bugs of ${folder}, or only the named ones ("3", "03-name" or "name"), each in a copy of the tree,
and runs the test file that must notice it. A plant is a file NN-name.patch: a sentence that says what the bug is,
a line "Test: path/of/file.test.ts", one or more lines "Fails: name of a test" (or "suite > test", or
/a regular expression/), then a unified diff.`,
  words: '[name ...]',
  flags,
  run: async ({ words, flags: { list }, output, signal }) => {
    const all = findPlants();
    const unknown = words.filter((name) => !all.some((found) => isCalled(found.name, name)));
    if (unknown.length > 0) {
      throw new Refusal(
        `There is no plant ${unknown.join(', ')} in ${folder}.`,
        'See: npm run plants -- --list',
        EXIT.usage,
      );
    }
    const chosen = all.filter((found) => words.length === 0 || words.some((name) => isCalled(found.name, name)));
    if (!list) return runAll(chosen, output, signal);
    for (const found of chosen) output.say('plant' in found ? `${found.name}: ${found.plant.what}` : found.name);
    output.emit({ plants: chosen.map(({ name }) => name) });
    return EXIT.ok;
  },
});

function findPlants(): Found[] {
  if (!existsSync(join(root, folder))) return [];
  const files = readdirSync(join(root, folder)).filter((file) => file.endsWith('.patch'));
  return files.toSorted().map((file) => {
    const name = file.slice(0, -'.patch'.length);
    const plant = parsePlant(name, readFileSync(join(root, folder, file), 'utf8'));
    return 'problems' in plant ? { name, problems: plant.problems } : { name, plant };
  });
}

async function runAll(chosen: readonly Found[], output: Output, signal: AbortSignal): Promise<number> {
  let unnoticed = 0;
  for (const found of chosen) {
    const started = performance.now();
    output.progress(`planting ${found.name} ...`);
    const verdict = await verdictOn(found, signal);
    if (signal.aborted) return EXIT.failed;
    if (!verdict.ok) unnoticed += 1;
    report(found.name, verdict, (performance.now() - started) / 1000, output);
  }
  output.say(`plants: ${chosen.length - unnoticed} of ${chosen.length} noticed`);
  return unnoticed === 0 ? EXIT.ok : EXIT.failed;
}

function verdictOn(found: Found, signal: AbortSignal): Promise<Verdict> | Verdict {
  if ('plant' in found) return tryPlant(root, found.plant, { signal });
  return { ok: false, reason: 'is not a plant', details: found.problems.join('\n') };
}

function report(name: string, { ok, reason, details }: Verdict, seconds: number, output: Output): void {
  output.emit({ plant: name, ok, reason, details, seconds });
  output.say(`${ok ? 'ok    ' : 'FAILED'}  ${name}  ${seconds.toFixed(1)} s  ${reason}`);
  if (details !== '') output.say(details.trimEnd().replace(/^/gm, '        '));
}
