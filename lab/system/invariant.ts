/** The reconciler's word on the running system, again and again: distinct effects = distinct intents. */
import { setTimeout as delay } from 'node:timers/promises';
import { startChild } from './child.ts';
import { topic } from './programs.ts';
import type { System } from './system.ts';

export interface Invariant {
  verdict: 'clean' | 'violated' | 'undecided';
  /** Of when it began to read. */
  checkedAt: string;
  tookMs: number;
  intents: number;
  orders: number;
  /** Orders that the traffic has not asked for: whoever tries the doors by hand has some. They are not judged. */
  others: number;
  charges: number;
  /** Undefined: not compared. */
  doubled: number | undefined;
  lost: number | undefined;
  reasons: readonly string[];
}

interface Verdict {
  verdict: Invariant['verdict'];
  counts: Record<string, number>;
  deltas: Record<string, { count: number }>;
  reasons: string[];
}

const shortestPauseMs = 5_000;
/** It reads everything each time, and the more there is the less often: it takes no more than a fifth of the time. */
const pausePerTime = 4;
/** Younger intents may be under way: a group takes some 20 s to notice who is dead, and to share out his lanes. */
const horizonS = 30;
const longestMs = 600_000;

/** Until the signal; `tell` gets each finding. */
export async function watchInvariant(
  { databases, kafka }: System,
  ledgers: () => string[],
  tell: (found: Invariant) => void,
  signal: AbortSignal,
): Promise<void> {
  let pauseMs = shortestPauseMs;
  for (;;) {
    await delay(pauseMs, undefined, { signal }).catch(() => {});
    if (signal.aborted) return;
    if (ledgers().length === 0) continue;
    const began = performance.now();
    const checkedAt = new Date().toISOString();
    const child = startChild('lab/recon/main.ts', [
      `--ledger=${ledgers().join()}`,
      `--database-url=${databases.orders}`,
      `--payments-url=${databases.payments}`,
      `--brokers=${kafka.bootstrap}`,
      `--topics=${topic}`,
      `--horizon-s=${horizonS}`,
    ]);
    const kill = (): void => child.kill();
    const late = setTimeout(kill, longestMs);
    signal.addEventListener('abort', kill, { once: true });
    const { code, lastLine } = await child.ended;
    clearTimeout(late);
    signal.removeEventListener('abort', kill);
    if (signal.aborted) return;
    const tookMs = Math.round(performance.now() - began);
    const found = read(lastLine, `recon ended with ${code}: ${child.said()}`);
    tell({ checkedAt, tookMs, ...found });
    // What could not be read, because a server was away, is looked at again soon.
    const isShort = found.verdict === 'undecided';
    pauseMs = isShort ? Math.max(shortestPauseMs, tookMs) : Math.max(shortestPauseMs, pausePerTime * tookMs);
  }
}

function read(line: Record<string, unknown> | undefined, otherwise: string): Omit<Invariant, 'checkedAt' | 'tookMs'> {
  const none = { intents: 0, orders: 0, others: 0, charges: 0, doubled: undefined, lost: undefined };
  if (line?.['verdict'] === undefined) return { verdict: 'undecided', ...none, reasons: [otherwise] };
  const { verdict, counts, deltas, reasons } = line as unknown as Verdict;
  return {
    verdict,
    intents: counts['intents'] ?? 0,
    orders: counts['orders'] ?? 0,
    others: counts['otherOrders'] ?? 0,
    charges: counts['charges'] ?? 0,
    doubled: deltas['doubled']?.count,
    lost: deltas['lost']?.count,
    reasons: [...reasons, ...besides(deltas)],
  };
}

/** What is wrong: lost and doubled have a place of their own. */
function besides(deltas: Verdict['deltas']): string[] {
  return Object.entries(deltas).flatMap(([name, { count }]) =>
    count > 0 && name !== 'lost' && name !== 'doubled' ? [`${count} ${name}`] : [],
  );
}
