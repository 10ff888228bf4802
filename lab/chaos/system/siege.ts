/** One run of a schedule: boot, faults under load, heal, settle what has no answer, drain, final read, verdict. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { kafkaAdmin } from '@twiceproof/infra/kafka-admin';
import { beginRun, type Run } from '@twiceproof/infra/run';
import { currentCommit, environment } from '../../shared/origin.ts';
import { within } from '../../supervisor/deadline.ts';
import type { DatabaseUrls } from '../../system/databases.ts';
import { createMeters, type Meters } from '../../system/meters.ts';
import { group, topic, type Substitutes } from '../../system/programs.ts';
import { startSystem, type System } from '../../system/system.ts';
import { untilDrained } from './drain.ts';
import { dumpTables, keepLogs } from './evidence.ts';
import { inWords, type Fault, type Outcome } from './fault.ts';
import { judge, startLoad, type Load, type Verdict } from './judges.ts';
import { reportOf, type Facts, type Report } from './report.ts';
import type { Schedule } from './schedule.ts';
import { strike, type Battle } from './strike.ts';

/** What stands before the judge instead of our own programs. */
export interface Accused {
  substitutes: Substitutes;
  /** For the judge: which tables are not there. */
  config: string;
  /** Nothing is kept of what we know beforehand, and know why. */
  isExpectedToFail: boolean;
  /** Behind the verdict, while the tables still stand. */
  examine(evidence: Evidence): Promise<void>;
}

export interface Evidence {
  databases: DatabaseUrls;
  ledger: string;
  verdict: Verdict;
  /** Those that had an effect, with their moments. */
  strikes: readonly { fault: Fault; atMs: number }[];
}

export interface SiegeOptions {
  /** What repeats it, for the report. */
  command: string;
  schedule: Schedule;
  /** Defaults to nobody: it is our own that is tried. */
  accused?: Accused;
  /** How long keys without an answer are asked for, and how long all that was written may take to have its effect. */
  patience?: { settleS: number; drainMs: number; stalledMs: number };
  /** A new directory for all that the run leaves. */
  out: string;
  signal: AbortSignal;
  progress(text: string): void;
  onPhase(phase: Phase): void;
  onFault(fault: Fault, outcome: Outcome): void;
}

export const phases = ['boot', 'faults', 'heal', 'settle', 'drain', 'read'] as const;
export type Phase = (typeof phases)[number];

const upWithinMs = 90_000;
const usualPatience = { settleS: 60, drainMs: 60_000, stalledMs: 60_000 };
const sampleEveryMs = 1_000;

export async function besiege(options: SiegeOptions): Promise<Report> {
  const { command, schedule, out, signal } = options;
  // Of the tree as it is now, and the machine as it was before the system ran on it.
  const began = { command, startedAt: new Date().toISOString(), commit: currentCommit(), environment: environment() };
  mkdirSync(out, { recursive: true });
  writeSchedule(out, schedule);
  const run = await beginRun('chaos');
  await using made = new AsyncDisposableStack();
  made.defer(async () => {
    await run.end();
  });
  try {
    const [system, facts] = await goThrough(options, run, made);
    const versions = { postgres: system.postgres.version, kafka: system.kafka.version };
    const report = reportOf({ ...began, environment: { ...began.environment, ...versions } }, facts);
    writeFileSync(join(out, 'report.json'), `${JSON.stringify(report, undefined, 2)}\n`);
    if (report.ok || options.accused?.isExpectedToFail) return report;
    keepLogs(run, join(out, 'logs'));
    await dumpTables(system, join(out, 'dump'));
    return report;
  } catch (error) {
    // Something has not come back: what it printed says why.
    if (!signal.aborted) keepLogs(run, join(out, 'logs'));
    throw error;
  }
}

async function goThrough(options: SiegeOptions, run: Run, made: AsyncDisposableStack): Promise<[System, Facts]> {
  const { schedule, out, accused, patience = usualPatience, signal } = options;
  const { phase, phasesMs } = createPhases(options);
  const ledger = join(out, 'ledger.tsv');
  const [system, load] = await phase('boot', async () => boot(options, run, ledger, made));
  const meters = createMeters(system.programs, system.kept);
  const sampling = sampleAllAlong(meters);
  made.defer(async () => sampling.stop());

  const beganAtMs = Date.now();
  const outcomes = await phase('faults', async () => strikeAll(system, options));
  writeSchedule(out, { ...schedule, faults: schedule.faults.map((fault, n) => ({ ...fault, outcome: outcomes[n]! })) });
  await phase('heal', async () => {
    system.wires!.heal();
    await system.untilUp(upWithinMs);
  });
  const isLate = (): string => 'the load has not ended';
  const ended = await phase('settle', async () =>
    within(patience.settleS * 1_000 + upWithinMs, load.child.ended, isLate),
  );
  const drained = await phase('drain', async () => {
    const isOurs = !accused?.substitutes.payments;
    const admin = kafkaAdmin(system.kafka.bootstrap);
    try {
      return await untilDrained(system.databases, {
        timeoutMs: patience.drainMs,
        stalledMs: patience.stalledMs,
        isHeld: isOurs,
        countUnread: isOurs ? async () => admin.unread(group, topic) : undefined,
        signal,
      });
    } finally {
      await admin.close();
    }
  });
  const [endedBadly, verdict] = await phase('read', async () => {
    await sampling.stop();
    await meters.sample();
    const badly = await system.stopPrograms();
    const named = accused && { config: accused.config, ids: 100_000 };
    return [badly, await judge(system, { ledger, ...named, out: join(out, 'recon') })];
  });
  const strikes = outcomes.flatMap(({ firedAtMs }, n) =>
    firedAtMs === undefined ? [] : [{ fault: schedule.faults[n]!, atMs: beganAtMs + firedAtMs }],
  );
  await accused?.examine({ databases: system.databases, ledger, verdict, strikes });
  const facts = {
    schedule,
    outcomes,
    verdict,
    drained,
    load: { code: ended.code, unsettled: (ended.lastLine?.['result'] as { unsettled: number } | undefined)?.unsettled },
    endedBadly,
    inboxDuplicates: meters.total('payments_messages_total', 'verdict="duplicate"'),
    injected: meters.total('payments_injected_total'),
    pooled: await system.pooler?.countTransactions(),
    restarts: Object.fromEntries(system.kept.map(({ name, restarts }) => [name, restarts])),
    phasesMs,
  };
  return [system, facts];
}

async function boot(
  { schedule, accused, patience = usualPatience, signal, progress }: SiegeOptions,
  run: Run,
  ledger: string,
  made: AsyncDisposableStack,
): Promise<[System, Load]> {
  const { seed, dupRate, uniqueCharge, effectOrder, pooled } = schedule;
  const system = await startSystem({
    run,
    brokers: 3,
    proxied: true,
    seed,
    dupRate,
    uniqueCharge,
    effectOrder,
    pooled,
    substitutes: accused?.substitutes,
    signal,
    progress,
  });
  made.defer(async () => system.close());
  await system.untilUp(upWithinMs);
  const load = startLoad(system, schedule, { ledger, settleS: patience.settleS });
  made.defer(async () => {
    load.child.kill();
    await load.child.ended;
  });
  await load.ready;
  return [system, load];
}

/** One after the other, each told and timed. */
function createPhases({ signal, onPhase }: SiegeOptions) {
  const phasesMs: Record<string, number> = {};
  const phase = async <T>(name: Phase, work: () => Promise<T>): Promise<T> => {
    signal.throwIfAborted();
    onPhase(name);
    const began = performance.now();
    const result = await work();
    phasesMs[name] = Math.round(performance.now() - began);
    return result;
  };
  return { phase, phasesMs };
}

/** Each at its moment, beside the others; all are over when this answers. */
async function strikeAll(system: System, { schedule, signal, progress, onFault }: SiegeOptions): Promise<Outcome[]> {
  const began = performance.now();
  const nowMs = (): number => Math.round(performance.now() - began);
  const over = new AbortController();
  const battle: Battle = { system, nowMs, signal: AbortSignal.any([signal, over.signal]) };
  const striking = schedule.faults.map(async (fault): Promise<Outcome> => {
    await delay(fault.atMs, undefined, { signal: battle.signal }).catch(() => {});
    if (battle.signal.aborted) return { result: 'missed' };
    const outcome = await strike(battle, fault);
    onFault(fault, outcome);
    const atS = ((outcome.firedAtMs ?? nowMs()) / 1_000).toFixed(1);
    progress(`${atS.padStart(7)} s  ${outcome.result.padEnd(6)}  ${inWords(fault)}`);
    return outcome;
  });
  await delay(schedule.seconds * 1_000, undefined, { signal: battle.signal }).catch(() => {});
  over.abort();
  const all = Promise.all(striking);
  all.catch(() => {});
  const stopped = Promise.withResolvers<void>();
  signal.addEventListener('abort', () => stopped.resolve(), { once: true });
  if (!signal.aborted) await Promise.race([all, stopped.promise]);
  signal.throwIfAborted();
  return all;
}

function sampleAllAlong(meters: Meters): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const { signal } = stopping;
  const sampling = (async () => {
    while (!signal.aborted) {
      await meters.sample();
      await delay(sampleEveryMs, undefined, { signal }).catch(() => {});
    }
  })();
  return {
    stop: async () => {
      stopping.abort();
      await sampling;
    },
  };
}

function writeSchedule(out: string, schedule: Schedule): void {
  writeFileSync(join(out, 'schedule.json'), `${JSON.stringify(schedule, undefined, 2)}\n`);
}
