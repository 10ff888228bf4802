/**
 * An open model: requests go out when the plan says, whether or not earlier ones are answered, and
 * latency counts from that time. A closed model, where a client waits for its answer before it sends
 * again, stops asking while a server stalls, and so measures the stall once instead of once for each
 * request that should have been sent.
 */
import type { Metrics } from '@twiceproof/program/metrics';
import type { Answers } from './answers.ts';
import { createEngine } from './engine.ts';
import type { Ledger } from './ledger.ts';
import type { Meter, Second } from './meter.ts';
import { problemsOf, targetsOf, type LoadOptions } from './options.ts';
import { turnUntilDone } from './turns.ts';

export interface LoadHooks {
  /** Ends the schedule: waits for what is in flight, lets it settle, and ends. */
  signal?: AbortSignal;
  /** Every connection is open, and the clock starts. */
  onReady?: () => void;
  onSecond?: (second: Second) => void;
  /** Not closed at the end. Defaults to none. */
  ledger?: Ledger;
  /** Gets what there is to tell of the run. Defaults to some that nobody reads. */
  metrics?: Metrics;
}

export interface LoadRun {
  options: LoadOptions;
  startedAt: Date;
  /** Until the last outcome. */
  elapsedMs: number;
  interrupted: boolean;
  counts: Meter['counts'];
  /** Keys of which it is not known in the end whether they were carried out. */
  unsettled: number;
  seconds: readonly Second[];
  histograms: ReturnType<Meter['histograms']>;
  answers: Pick<Answers, 'compared' | 'different' | 'samples'>;
  /** Of this process, which may do other things too. */
  cpuUs: number;
}

/** Before the start: somebody has to be there. Later it is normal that nobody is. */
export class Unreachable extends Error {}

export async function runLoad(options: LoadOptions, hooks: LoadHooks = {}): Promise<LoadRun> {
  const problems = problemsOf(options);
  if (problems.length > 0) throw new RangeError(problems.join('; '));
  const engine = createEngine(options, hooks.ledger, hooks.metrics);
  const { meter, answers, unsettled, pools } = engine;
  try {
    await Promise.all(pools.map((pool) => pool.open())).catch((cause: unknown) => {
      throw new Unreachable(cause instanceof Error ? cause.message : String(cause), { cause });
    });
    hooks.onReady?.();
    const startedAt = new Date();
    engine.startMs = performance.now();
    engine.ledger.begin(factsOf(options, startedAt));
    const cpuBefore = process.cpuUsage();
    const elapsedMs = await turnUntilDone(engine, hooks);
    const cpu = process.cpuUsage(cpuBefore);
    meter.counts.skipped = engine.held;
    return {
      options,
      startedAt,
      elapsedMs,
      interrupted: hooks.signal?.aborted ?? false,
      counts: meter.counts,
      unsettled: unsettled.size(),
      seconds: meter.seconds,
      histograms: meter.histograms(),
      answers: { compared: answers.compared, different: answers.different, samples: answers.samples },
      cpuUs: cpu.user + cpu.system,
    };
  } finally {
    for (const pool of pools) pool.close();
  }
}

/** For the first line of the ledger. The principal is what a Bearer token names, or the whole of another header. */
function factsOf(options: LoadOptions, startedAt: Date): object {
  const { seed, rate, retryRate, statusRate, principalHeader } = options;
  const principal = principalHeader.replace(/^[^:]*: (Bearer )?/i, '');
  const startMs = startedAt.getTime();
  return { startedAt, startMs, seed, principal, targets: targetsOf(options), rate, retryRate, statusRate };
}
