/** The verdict for people: what was counted, and what is not as it should be. */
import { deltas, type Delta } from './invariants.ts';
import type { Report } from './recon.ts';

const meanings: Record<Delta, string> = {
  lost: 'answered or begun, and not there at the hop that is named',
  doubled: 'there twice',
  phantom: 'there, and nobody asked for it',
  outOfOrder: 'before an older one of its key, or a key in two partitions',
  answeredDifferently: 'one key, two answers; or one answer, two keys',
  refusedButDone: 'every request was refused, and it was done all the same',
  altered: 'a message with other bytes than before, or than were committed',
  wrongContent: 'another amount, status or owner than was asked for',
  unclaimed: 'done, and the key is not remembered',
  late: 'held: older than what the inbox remembers',
  parked: 'waits for a person, and its key behind it',
  quarantined: 'held: it was not run on a guess',
};

export function tableOf({ verdict, counts, deltas: found, reasons, tookMs }: Report): string {
  const compared = deltas.flatMap((delta) => (found[delta] ? [{ delta, ...found[delta] }] : []));
  const width = Math.max(...[...Object.keys(counts), ...deltas].map((name) => name.length));
  const row = (name: string, count: number, text: string): string =>
    `  ${name.padEnd(width)}${count.toLocaleString('en').padStart(14)}  ${text}`.trimEnd();
  return [
    ...Object.entries(counts).map(([name, count]) => row(name, count, '')),
    ...(compared.length > 0 ? [''] : []),
    ...compared.flatMap(({ delta, count, ids }) => {
      const more =
        count > ids.length ? [`${' '.repeat(width + 18)}and ${(count - ids.length).toLocaleString('en')} more`] : [];
      return [
        row(delta, count, count > 0 ? meanings[delta] : ''),
        ...ids.map((id) => ' '.repeat(width + 18) + id),
        ...more,
      ];
    }),
    '',
    ...reasons.map((reason) => `  could not decide: ${reason}`),
    `verdict: ${verdict} (${(tookMs / 1_000).toFixed(1)} s)`,
  ].join('\n');
}
