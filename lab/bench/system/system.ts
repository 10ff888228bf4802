/**
 * `npm run bench -- system`: the whole path on one machine, at the promised rate and at others. The same servers and
 * processes for all of it; what is done is judged by the reconciler, by the ledgers of all loads together.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startProgram } from '../children.ts';
import { promisedRate, type SystemScale } from './cases.ts';
import { measureRate, type Measured, type SystemRun } from './measure.ts';
import { leastDisturbed } from '../undisturbed.ts';
import { openStage, topic, type Stage } from './stage.ts';

export interface SystemRound {
  promised: SystemRun;
  /** By the rate. */
  ladder: Record<string, SystemRun>;
}

export interface Judged {
  verdict: string;
  counts: Record<string, number>;
  /** Those that are not zero. */
  deltas: Record<string, number>;
  reasons: string[];
  tookMs: number;
}

export interface SystemRounds {
  rounds: SystemRound[];
  /** Of the lag at the promised rate, for each round. */
  series: Measured['series'][];
  recon: Judged;
  versions: { postgres: string; kafka: string };
}

export interface SystemOptions {
  scale: SystemScale;
  seed: number;
  signal: AbortSignal;
  progress(text: string): void;
}

export async function runSystem({ scale, seed, signal, progress }: SystemOptions): Promise<SystemRounds> {
  const directory = mkdtempSync(join(tmpdir(), 'bench-system-'));
  const stage = await openStage(seed, signal);
  const ledgers: string[] = [];
  const measure = async (rate: number, measuredS: number): Promise<Measured> => {
    const ledger = join(directory, `${ledgers.length}.tsv`);
    const loadSeed = (seed + ledgers.length) % 2 ** 32;
    ledgers.push(ledger);
    return measureRate(stage, { rate, measuredS, seed: loadSeed, ledger, signal });
  };
  try {
    await measure(promisedRate, scale.warmS);
    const rounds: SystemRound[] = [];
    const series: Measured['series'][] = [];
    for (let round = 1; round <= scale.rounds; round += 1) {
      const say = (run: SystemRun): void =>
        progress(
          `bench: round ${round} of ${scale.rounds}, ${run.rate}/s: p99 ${run.p99Ms.toFixed(0)} ms, to effect ${run.effectP99Ms.toFixed(0)} ms, ${total(run).toFixed(2)} cores`,
        );
      const promised = await measureUndisturbed(scale.attempts, async () => measure(promisedRate, scale.measuredS));
      say(promised.run);
      series.push(promised.series);
      const ladder: Record<string, SystemRun> = {};
      for (const rate of scale.ladder) {
        const { run } = await measure(rate, scale.ladderS);
        say(run);
        ladder[rate] = run;
      }
      rounds.push({ promised: promised.run, ladder });
    }
    progress('bench: judging all that was done');
    const recon = await judgeAll(stage, ledgers);
    const { postgres, kafka } = stage.world;
    return { rounds, series, recon, versions: { postgres: postgres.version, kafka: kafka.version } };
  } finally {
    await stage.close();
    rmSync(directory, { recursive: true });
  }
}

/** Judged by what the host stole, and by nothing that came out. */
async function measureUndisturbed(attempts: number, measureOnce: () => Promise<Measured>): Promise<Measured> {
  const series = new Map<number, Measured['series']>();
  const { counted, others } = await leastDisturbed(attempts, async (attempt) => {
    const once = await measureOnce();
    series.set(attempt + 1, once.series);
    return once.run;
  });
  // What was not answered cannot be blamed on the host.
  const okShare = Math.min(...[counted, ...others].map((run) => run.okShare));
  return {
    run: { ...counted, okShare, ...(others.length > 0 && { disturbed: others }) },
    series: series.get(counted.attempt!)!,
  };
}

export function total({ cores }: SystemRun): number {
  return Object.values(cores).reduce((sum, share) => sum + share, 0);
}

async function judgeAll({ world, databases }: Stage, ledgers: readonly string[]): Promise<Judged> {
  type Found = Omit<Judged, 'deltas'> & { deltas: Record<string, { count: number }> };
  let found: Found | undefined;
  const args = [
    `--ledger=${ledgers.join()}`,
    `--database-url=${databases.orders.url}`,
    `--payments-url=${databases.payments.url}`,
    `--brokers=${world.kafka.bootstrap}`,
    `--topics=${topic}`,
  ];
  const child = startProgram('lab/recon/main.ts', args, {
    onLine: (line) => {
      if ('verdict' in line) found = line as unknown as Found;
    },
  });
  const code = await child.ended;
  if (!found) throw new Error(`recon ended with ${code}: ${child.said()}`);
  const { verdict, counts, reasons, tookMs } = found;
  const wrong = Object.entries(found.deltas).flatMap(([name, { count }]) =>
    count > 0 ? [[name, count] as const] : [],
  );
  // Nobody else has written into these databases, nothing wrong was asked, and each key was asked for until it was answered.
  const strange = ['otherOrders', 'refused', 'unknown', 'neverSent'].flatMap((name) =>
    counts[name] ? [[name, counts[name]] as const] : [],
  );
  return {
    verdict: strange.length > 0 ? 'violated' : verdict,
    counts,
    deltas: Object.fromEntries([...wrong, ...strange]),
    reasons,
    tookMs,
  };
}
