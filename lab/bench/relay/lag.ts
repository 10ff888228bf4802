/** How far what is published lies behind what is committed: from two counters that were read from outside. */

/** A counter that only grows, as it was seen at some moments. */
export interface Seen {
  atMs: number;
  count: number;
}

export interface Lag {
  atMs: number;
  rows: number;
  /** Of the oldest row that is not published, if rows are published in the order of their commits. */
  ageMs: number;
}

/** At each moment at which `published` was read, between the first and the last reading of `committed`. */
export function lags(committed: readonly Seen[], published: readonly Seen[]): Lag[] {
  const first = committed[0]?.atMs ?? Infinity;
  const last = committed.at(-1)?.atMs ?? -Infinity;
  return published
    .filter(({ atMs }) => atMs >= first && atMs <= last)
    .map(({ atMs, count }) => {
      // Between two readings the writer was seen later than it was, and a relay is never ahead of it.
      const rows = Math.max(0, Math.round(countAt(committed, atMs) - count));
      const ageMs = rows === 0 ? 0 : Math.max(0, Math.round(atMs - timeOf(committed, count)));
      return { atMs, rows, ageMs };
    });
}

function countAt(seen: readonly Seen[], atMs: number): number {
  const after = seen.findIndex((each) => each.atMs >= atMs);
  if (after === -1) return seen.at(-1)?.count ?? 0;
  const [a, b] = [seen[Math.max(0, after - 1)]!, seen[after]!];
  return b.atMs === a.atMs ? b.count : a.count + ((b.count - a.count) * (atMs - a.atMs)) / (b.atMs - a.atMs);
}

/** When the counter passed this count. */
export function timeOf(seen: readonly Seen[], count: number): number {
  const after = seen.findIndex((each) => each.count > count);
  if (after <= 0) return (after === 0 ? seen[0] : seen.at(-1))?.atMs ?? 0;
  const [a, b] = [seen[after - 1]!, seen[after]!];
  return a.atMs + ((b.atMs - a.atMs) * (count - a.count)) / (b.count - a.count);
}

/** Rows a second by which the lag grows: the slope of the straight line that fits best. */
export function growthPerSecond(samples: readonly Lag[]): number {
  const mean = (of: (sample: Lag) => number): number =>
    samples.reduce((sum, sample) => sum + of(sample), 0) / Math.max(1, samples.length);
  const [meanMs, meanRows] = [mean(({ atMs }) => atMs), mean(({ rows }) => rows)];
  const covariance = mean(({ atMs, rows }) => (atMs - meanMs) * (rows - meanRows));
  const variance = mean(({ atMs }) => (atMs - meanMs) ** 2);
  return variance === 0 ? 0 : (1_000 * covariance) / variance;
}

/**
 * Seconds until the oldest row is again no older than `ageMs`, and stays so for `holdMs`: one good moment on the way is no
 * end of it. Never, if that did not come while it was watched.
 */
export function secondsUntilFlat(
  samples: readonly Lag[],
  { ageMs, holdMs }: { ageMs: number; holdMs: number },
): number {
  const [first, last] = [samples[0], samples.at(-1)];
  if (!first || !last) return Infinity;
  const flat = samples.find((sample, n) => {
    const bad = samples.find((later, m) => m >= n && later.ageMs > ageMs);
    return bad !== sample && (bad ?? last).atMs - sample.atMs >= holdMs;
  });
  return flat ? (flat.atMs - first.atMs) / 1_000 : Infinity;
}
