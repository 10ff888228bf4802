/** What the host takes away while something is measured, and what is done about it. */

/**
 * A core that the host takes away for 20 ms makes a hundred requests late at 5,000/s, whatever the program. A window with
 * more than this is measured again; what came out the first time is told too.
 */
export const disturbingShare = 0.0025;

export interface Disturbable {
  /** Of the time of all cores, what the host gave to others. */
  stolenShare: number;
  /** Which one it was, where it may be measured again. */
  attempt?: number;
}

/**
 * The first that is not disturbed, by how much was stolen and by nothing else; of `attempts` that all are, the least. The
 * others are told with it.
 */
export async function leastDisturbed<T extends Disturbable>(
  attempts: number,
  measureOnce: (attempt: number) => Promise<T>,
): Promise<{ counted: T; others: T[] }> {
  const all: T[] = [];
  while (all.length < attempts && !(all.at(-1) && all.at(-1)!.stolenShare <= disturbingShare)) {
    all.push({ ...(await measureOnce(all.length)), attempt: all.length + 1 });
  }
  const counted = all.reduce((least, each) => (each.stolenShare < least.stolenShare ? each : least));
  return { counted, others: all.filter((each) => each !== counted) };
}

/** For people: what was measured again, and what came out at first. */
export function repetitions<T extends Disturbable & { disturbed?: T[] }>(
  windows: string,
  counted: readonly T[],
  figure: { name: string; of(measured: T): number },
): string[] {
  const repeated = counted.reduce((sum, { disturbed = [] }) => sum + disturbed.length, 0);
  const firsts = counted.map((each) => [each, ...(each.disturbed ?? [])].find(({ attempt = 1 }) => attempt === 1)!);
  const still = counted.filter(({ stolenShare }) => stolenShare > disturbingShare).length;
  return [
    ...(repeated > 0
      ? [
          `NOTE: the host disturbed ${repeated} windows of ${windows}; they were measured again.`,
          `NOTE: ${figure.name} as it was measured the first time: ${firsts.map((first) => `${figure.of(first)} ms`).join(', ')}.`,
        ]
      : []),
    ...(still > 0 ? [`NOTE: ${still} of those that count were still disturbed.`] : []),
  ];
}
