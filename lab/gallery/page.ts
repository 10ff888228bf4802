/** The page of the docs, made from the result file. */
import type { Environment } from '../shared/origin.ts';
import type { Entry } from './entries.ts';
import type { Judged } from './trial.ts';

/** One run of the gallery, of all recipes or of some. */
export interface GalleryRun {
  command: string;
  startedAt: string;
  /** Of the tree that ran; `+` if files were changed since. */
  commit: string;
  environment: Environment;
}

export interface GalleryResult {
  /** In the order of the entries; each with the last run in which it was tried. */
  judged: readonly (Judged & { run: GalleryRun })[];
}

export function pageOf(entries: readonly Entry[], { judged }: GalleryResult): string {
  const rows = entries.flatMap((entry) => {
    const one = judged.find(({ name }) => name === entry.name);
    return one ? [rowOf(entry, one)] : [];
  });
  const runs = new Map(judged.map(({ run }) => [run.startedAt, run]));
  return [
    '# The gallery',
    '',
    'Recipes that people publish, each as a small program in the place of ours ([lab/gallery](../lab/gallery/README.md)), under the same seeded chaos, with the verdict of the reconciler. Nothing else judges them.',
    '',
    `Besides what the schedule draws, ${outagesOf(entries)}: what breaks these needs a database that is away for longer than a moment.`,
    '',
    'Made by `npm run gallery -- --page` from [the result](../lab/results/gallery/result.json) of:',
    '',
    ...[...runs.values()].map(
      ({ command, startedAt, commit }) =>
        `- \`${command}\`, ${startedAt.slice(0, 10)}, commit ${commit.slice(0, 7)}${commit.endsWith('+') ? ' with changes' : ''}`,
    ),
    '',
    '| recipe | verdict | what the judge found | of orders | first wrong | the fault that struck next |',
    '| --- | --- | --- | --- | --- | --- |',
    ...rows,
    '',
    'First wrong: how many orders had been written when the earliest of what went wrong was asked for. The fault that struck next: on the program in question, on its wires, or on a server, and how much later; it is often, and not always, what broke it. What is asked for has its effect within a fraction of a second, in the first seconds of a run, while a group is still forming, within a few. Where the next fault came later than that, none was needed: two requests at once, or a message that comes again, will do.',
    '',
    '## Why each breaks',
    '',
    ...entries.flatMap(({ name, room, recipe, why }) => [`**${name}** (${room}: ${recipe}). ${why}`, '']),
  ].join('\n');
}

function outagesOf(entries: readonly Entry[]): string {
  const names = entries.flatMap(({ name, outages }) => (outages ? [name] : []));
  return `${names.join(' and ')} lose the wires to their database for three seconds, all at once`;
}

function rowOf({ room, recipe }: Entry, { verdict, deltas, orders, name, first }: Judged): string {
  const found = Object.entries(deltas).map(([delta, count]) => `${count} ${delta}`);
  const begun = first ? `after ${first.orders} orders | ${first.fault}` : '|';
  return `| ${room}: ${name}, ${recipe} | ${verdict} | ${found.join(', ') || 'nothing'} | ${orders} | ${begun} |`;
}
