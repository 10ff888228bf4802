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
    'Made by `npm run gallery -- --page` from [the result](../lab/results/gallery/result.json) of:',
    '',
    ...[...runs.values()].map(
      ({ command, startedAt, commit }) =>
        `- \`${command}\`, ${startedAt.slice(0, 10)}, commit ${commit.slice(0, 7)}${commit.endsWith('+') ? ' with changes' : ''}`,
    ),
    '',
    '| recipe | verdict | what the judge found | of orders | first wrong | what struck it |',
    '| --- | --- | --- | --- | --- | --- |',
    ...rows,
    '',
    'First wrong: how many orders had been written when the first thing that went wrong was asked for. What struck it: what most of the wrong things have in common, that this fault struck within a second after they were asked for. Where that is nothing, the recipe needs no fault: two requests at once, or a message that comes again, will do.',
    '',
    '## Why each breaks',
    '',
    ...entries.flatMap(({ name, room, recipe, why }) => [`**${name}** (${room}: ${recipe}). ${why}`, '']),
  ].join('\n');
}

function rowOf({ room, recipe }: Entry, { verdict, deltas, orders, name, first, struck }: Judged): string {
  const found = Object.entries(deltas).map(([delta, count]) => `${count} ${delta}`);
  const by = struck ? `${struck.fault ?? 'nothing'} (${Math.round(100 * struck.share)} %)` : '';
  const begun = first ? `after ${first.orders} orders | ${by}` : '|';
  return `| ${room}: ${name}, ${recipe} | ${verdict} | ${found.join(', ') || 'nothing'} | ${orders} | ${begun} |`;
}
