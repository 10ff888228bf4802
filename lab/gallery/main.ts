/** `npm run gallery`: the recipes that people publish, under the same chaos as ours, and the judge's verdict on each. */
import { randomInt } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkout, stateDirectory } from '@twiceproof/infra/directories';
import { EXIT, main, Refusal, type Context, type FlagSpecs } from '@twiceproof/program';
import { currentCommit, environment } from '../shared/origin.ts';
import { entries, type Entry } from './entries.ts';
import { pageOf, type GalleryResult, type GalleryRun } from './page.ts';
import { tryEntry, type Judged } from './trial.ts';

const flags = {
  seed: { type: 'integer', min: 0, max: 4_294_967_295, help: 'otherwise a random one, which is printed' },
  list: { type: 'boolean', help: 'names and recipes; nothing is run' },
  page: { type: 'boolean', help: 'makes docs/gallery.md of the result file; nothing is run' },
  out: {
    type: 'string',
    help: 'directory for result.json, in which those that are tried take their new places; lab/results/gallery',
  },
} as const satisfies FlagSpecs;

const resultFolder = join(checkout, 'lab/results/gallery');

await main({
  name: 'gallery',
  summary: `Puts each recipe, or only the named ones, in the place of our own program, under seeded chaos, and has the
reconciler judge it. About a minute and a half for each. Exits with 1 when a verdict is not the expected one.`,
  words: '[name ...]',
  flags,
  run: async (context) => {
    const unknown = context.words.filter((word) => !entries.some(({ name }) => name === word));
    if (unknown.length > 0) {
      throw new Refusal(`There is no recipe ${unknown.join(', ')}.`, 'See: npm run gallery -- --list', EXIT.usage);
    }
    if (context.flags.list) return list(context);
    return context.flags.page ? makePage(context) : tryAll(context);
  },
});

function list({ output }: Context<typeof flags>): number {
  for (const { name, room, recipe } of entries) output.say(`${room.padEnd(6)} ${name.padEnd(22)} ${recipe}`);
  output.emit({ entries: entries.map(({ name }) => name) });
  return EXIT.ok;
}

function makePage({ output }: Context<typeof flags>): number {
  const result = JSON.parse(readFileSync(join(resultFolder, 'result.json'), 'utf8')) as GalleryResult;
  writeFileSync(join(checkout, 'docs/gallery.md'), pageOf(entries, result));
  output.say('docs/gallery.md is made.');
  return EXIT.ok;
}

async function tryAll({ flags: given, words, output, signal }: Context<typeof flags>): Promise<number> {
  const chosen = entries.filter(({ name }) => words.length === 0 || words.includes(name));
  const seed = given.seed ?? randomInt(2 ** 32);
  const startedAt = new Date().toISOString();
  const work = join(stateDirectory(), 'gallery', startedAt.replaceAll(/[:.]/g, '-'));
  const run: GalleryRun = {
    command: ['npm run gallery --', ...words, `--seed ${seed}`].join(' '),
    startedAt,
    commit: currentCommit(),
    environment: environment(),
  };
  output.progress(`gallery: ${chosen.length} recipes, seed ${seed}`);
  const judged: Judged[] = [];
  for (const [n, entry] of chosen.entries()) {
    output.progress(`gallery: ${n + 1} of ${chosen.length}: ${entry.name} ...`);
    const one = await tryOne(entry, { seed, out: join(work, entry.name), signal, progress: () => {} });
    if (!one) {
      output.progress('gallery: stopped; what was judged is kept, and nothing is left running.');
      return EXIT.failed;
    }
    judged.push(one);
    keep(given.out ?? resultFolder, { ...one, run });
    const found = Object.entries(one.deltas).map(([delta, count]) => `${count} ${delta}`);
    output.emit({ judged: one });
    output.say(
      `${one.ok ? 'ok    ' : 'FAILED'}  ${one.name.padEnd(22)} ${one.verdict.padEnd(9)} ${found.join(', ') || 'nothing'} of ${one.orders} orders, ${one.tookS} s`,
    );
    for (const reason of one.ok ? [] : one.reasons) output.say(`        ${reason}`);
  }
  const failed = judged.filter(({ ok }) => !ok).length;
  output.say(`gallery: ${judged.length - failed} of ${judged.length} as expected, seed ${seed}`);
  return failed === 0 ? EXIT.ok : EXIT.failed;
}

/** One that could not be tried must not cost what the others have shown. Undefined: somebody has had enough. */
async function tryOne(entry: Entry, options: Parameters<typeof tryEntry>[1]): Promise<Judged | undefined> {
  try {
    return await tryEntry(entry, options);
  } catch (error) {
    if (options.signal.aborted) return undefined;
    const { name, room, expects } = entry;
    const nothing = { deltas: {}, orders: 0, first: undefined, faults: {}, tookS: 0 };
    return { name, room, expects, verdict: 'undecided', ok: false, ...nothing, reasons: [String(error)] };
  }
}

/** A recipe that is tried again takes the place of its last trial. */
function keep(folder: string, judged: GalleryResult['judged'][number]): void {
  const file = join(folder, 'result.json');
  const before = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as GalleryResult).judged : [];
  const last = new Map([...before, judged].map((one) => [one.name, one]));
  const result: GalleryResult = { judged: entries.flatMap(({ name }) => last.get(name) ?? []) };
  mkdirSync(folder, { recursive: true });
  writeFileSync(file, `${JSON.stringify(result, undefined, 2)}\n`);
}
