/** Rates and percentiles of what happened lately, from counters that only grow. */
import type { Meters } from './meters.ts';

export interface Window {
  /** Notes how far the counters are now. */
  note(): void;
  /** A second. */
  rate(name: string, label?: string): number;
  /** In milliseconds, of a histogram in seconds; undefined if nothing came. */
  p99Ms(name: string): number | undefined;
}

interface Moment {
  atMs: number;
  totals: Map<string, number>;
}

const keptMs = 10_000;

/** What shall be asked for is known beforehand: only that is noted. */
export function openWindow(
  meters: Meters,
  counters: readonly (readonly [string, string?])[],
  histograms: readonly string[],
): Window {
  const moments: Moment[] = [];
  const read = (): Map<string, number> =>
    new Map([
      ...counters.map(([name, label]): [string, number] => [keyOf(name, label), meters.total(name, label)]),
      ...histograms.flatMap((name) =>
        [...meters.buckets(name)].map(([le, count]): [string, number] => [keyOf(name, le), count]),
      ),
    ]);
  const between = (key: string): number => {
    const [first, last] = [moments[0], moments.at(-1)];
    return Math.max(0, (last?.totals.get(key) ?? 0) - (first?.totals.get(key) ?? 0));
  };
  return {
    note: () => {
      moments.push({ atMs: performance.now(), totals: read() });
      while (moments.length > 2 && moments[0]!.atMs < performance.now() - keptMs) moments.shift();
    },
    rate: (name, label) => {
      const seconds = ((moments.at(-1)?.atMs ?? 0) - (moments[0]?.atMs ?? 0)) / 1_000;
      return seconds > 0 ? between(keyOf(name, label)) / seconds : 0;
    },
    p99Ms: (name) => {
      const bounds = [...meters.buckets(name).keys()];
      const counts = bounds.map((le) => between(keyOf(name, le)));
      const seconds = percentile(bounds.map(Number), counts, 0.99);
      return seconds === undefined ? undefined : 1_000 * seconds;
    },
  };
}

function keyOf(name: string, label = ''): string {
  return `${name} ${label}`;
}

/** Of cumulative counts; within a bucket as if it were evenly filled. Undefined if there are none. */
export function percentile(bounds: readonly number[], counts: readonly number[], share: number): number | undefined {
  const wanted = share * (counts.at(-1) ?? 0);
  const at = counts.findIndex((count) => count > 0 && count >= wanted);
  if (at === -1) return undefined;
  const [low, below] = at === 0 ? [0, 0] : [bounds[at - 1]!, counts[at - 1]!];
  const high = bounds[at]!;
  if (!Number.isFinite(high)) return low;
  return low + ((high - low) * (wanted - below)) / Math.max(1, counts[at]! - below);
}
