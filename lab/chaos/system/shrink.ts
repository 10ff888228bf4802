/**
 * Fewer faults that still break it: first a half of them, then the other; when neither does, quarters are left out, and so
 * on (ddmin). Real processes do not fail twice in the same way, so each answer may be wrong, and the runs are limited.
 */
export interface Shrunk<T> {
  /** The fewest that were seen to fail. */
  items: readonly T[];
  runs: number;
}

export async function shrink<T>(
  items: readonly T[],
  fails: (subset: readonly T[]) => Promise<boolean>,
  maxRuns: number,
): Promise<Shrunk<T>> {
  let smallest = items;
  let pieces = 2;
  let runs = 0;
  const attempt = async (subset: readonly T[]): Promise<boolean> => {
    if (runs >= maxRuns) return false;
    runs += 1;
    return fails(subset);
  };
  while (smallest.length > 1 && runs < maxRuns) {
    const size = Math.ceil(smallest.length / pieces);
    const starts = Array.from({ length: Math.ceil(smallest.length / size) }, (_, n) => n * size);
    const parts = starts.map((start) => smallest.slice(start, start + size));
    const rests = starts.map((start) => [...smallest.slice(0, start), ...smallest.slice(start + size)]);
    // With two pieces the rest of one is the other.
    const found = await firstThat(pieces === 2 ? parts : [...parts, ...rests], attempt);
    if (found) {
      pieces = found.length === smallest.length - size ? Math.max(2, pieces - 1) : 2;
      smallest = found;
    } else if (size === 1) {
      break;
    } else {
      pieces = Math.min(2 * pieces, smallest.length);
    }
  }
  return { items: smallest, runs };
}

async function firstThat<T>(
  candidates: readonly (readonly T[])[],
  holds: (candidate: readonly T[]) => Promise<boolean>,
): Promise<readonly T[] | undefined> {
  for (const candidate of candidates) if (await holds(candidate)) return candidate;
  return undefined;
}
