/** A histogram of Prometheus's text format, as the relay has it at `/metrics`. */
export interface Buckets {
  /** The upper bound of a bucket and how many are in it or below. The last bound is infinite. */
  bounds: { upTo: number; count: number }[];
}

export function bucketsOf(text: string, name: string): Buckets {
  const pattern = new RegExp(`^${name}_bucket\\{le="([^"]+)"\\} (\\d+)$`, 'gm');
  const bounds = [...text.matchAll(pattern)].map(([, upTo = '', count]) => ({
    upTo: upTo === '+Inf' ? Infinity : Number(upTo),
    count: Number(count),
  }));
  return { bounds };
}

/** Of what came between two readings; within a bucket as if it were evenly filled. Undefined if nothing came. */
export function percentileBetween(before: Buckets, after: Buckets, share: number): number | undefined {
  const counts = after.bounds.map(({ count }, n) => count - (before.bounds[n]?.count ?? 0));
  const wanted = share * (counts.at(-1) ?? 0);
  const at = counts.findIndex((count) => count > 0 && count >= wanted);
  if (at === -1) return undefined;
  const [low, below] = at === 0 ? [0, 0] : [after.bounds[at - 1]!.upTo, counts[at - 1]!];
  const high = after.bounds[at]!.upTo;
  if (!Number.isFinite(high)) return low;
  return low + ((high - low) * (wanted - below)) / Math.max(1, counts[at]! - below);
}

/** The sum of a counter over those of its labels that hold this text. */
export function counterOf(text: string, name: string, label: string): number {
  const pattern = new RegExp(`^${name}\\{([^}]*)\\} (\\d+)$`, 'gm');
  return [...text.matchAll(pattern)]
    .filter(([, labels = '']) => labels.includes(label))
    .reduce((sum, [, , count]) => sum + Number(count), 0);
}
