/** The load and the judge, each a program of its own: they meet the system as clients do. */
import { startChild, type Child } from '../../system/child.ts';
import { topic } from '../../system/programs.ts';
import type { System } from '../../system/system.ts';
import type { Schedule } from './schedule.ts';

/** The last line of `npm run recon -- --json`. */
export interface Verdict {
  verdict: 'clean' | 'violated' | 'undecided';
  counts: Record<string, number>;
  deltas: Record<string, { count: number; ids: string[] }>;
  reasons: string[];
  tookMs: number;
  stepsMs?: Record<string, number>;
}

export interface Load {
  child: Child;
  /** When it sends. */
  ready: Promise<void>;
}

/** It judges millions of orders in less; one that hangs has not decided. */
const judgedWithinMs = 1_800_000;
/** Behind the faults: the system is healed under load. */
const healS = 3;

export function startLoad(
  { doors }: System,
  { seed, rate, seconds }: Schedule,
  { ledger, settleS }: { ledger: string; settleS: number },
): Load {
  const ready = Promise.withResolvers<void>();
  const child = startChild(
    'lab/load/main.ts',
    [
      `--url=${doors.http.join()}`,
      ...(doors.grpc.length > 0 ? [`--grpc=${doors.grpc.join()}`] : []),
      `--rate=${rate}`,
      `--duration=${seconds + healS}`,
      `--seed=${seed}`,
      `--ledger=${ledger}`,
      `--settle=${settleS}`,
      '--retry-rate=0.15',
      '--status-rate=0.2',
      '--spacing=poisson',
      '--timeout-ms=3000',
      '--admin-port=0',
    ],
    (line) => {
      if (line['ready'] === true) ready.resolve();
    },
  );
  const failed = child.ended.then(({ code }): never => {
    throw new Error(`the load ended with ${code}: ${child.said()}`);
  });
  failed.catch(() => {});
  return { child, ready: Promise.race([ready.promise, failed]) };
}

/** `config` is a file that says which tables are read; without one, our own. Of each delta it names so many `ids`. */
export async function judge(
  { databases, kafka }: System,
  { ledger, config, ids, out }: { ledger: string; config?: string | undefined; ids?: number | undefined; out: string },
): Promise<Verdict> {
  const child = startChild('lab/recon/main.ts', [
    `--ledger=${ledger}`,
    `--database-url=${databases.orders}`,
    `--payments-url=${databases.payments}`,
    `--brokers=${kafka.bootstrap}`,
    `--topics=${topic}`,
    `--out=${out}`,
    ...(config === undefined ? [] : [`--config=${config}`]),
    ...(ids === undefined ? [] : [`--ids=${ids}`]),
  ]);
  const late = setTimeout(() => child.kill(), judgedWithinMs);
  const { code, lastLine } = await child.ended;
  clearTimeout(late);
  const found = lastLine as unknown as Verdict | undefined;
  if (found?.verdict !== undefined && (found.verdict === 'clean') === (code === 0)) return found;
  const reasons = [`recon ended with ${code}: ${child.said()}`];
  return { verdict: 'undecided', counts: {}, deltas: {}, reasons, tookMs: 0 };
}
