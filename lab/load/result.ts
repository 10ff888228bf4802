/** What a run leaves behind: numbers with everything that is needed to run it again, and a plot. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { environment, type Environment } from '../shared/origin.ts';
import { summarize, toSparse, type Summary } from './histogram.ts';
import { plot } from './plot.ts';
import type { LoadRun } from './run.ts';

export interface LoadResult {
  /** Whether the figures mean anything; `problems` says why not. */
  valid: boolean;
  problems: string[];
  interrupted: boolean;
  command: string;
  options: LoadRun['options'];
  /** When the run ended. */
  environment: Environment;
  startedAt: string;
  elapsedS: number;
  /** Requests a second: wanted, and reached over the seconds after the warm-up. */
  rate: { wanted: number; sent: number; answered: number };
  counts: LoadRun['counts'];
  unsettled: LoadRun['unsettled'];
  /** From the intended send time. `hot` are the ten hottest keys, `cold` all others. */
  latency: Record<'all' | 'first' | 'retry' | 'hot' | 'cold', Summary>;
  /** How late the generator itself was: its share in the latencies, or the machine's. */
  lateness: Summary;
  answers: LoadRun['answers'];
  cost: { cpuS: number; cores: number; cpuUsPerRequest: number };
  seconds: LoadRun['seconds'];
}

export function resultOf(run: LoadRun, command: string): LoadResult {
  const { options, counts, histograms, answers, elapsedMs, cpuUs } = run;
  const { all, first, retry, hot, cold, lateness } = histograms;
  const measured = run.seconds.slice(options.warmupS, Math.floor(options.durationS));
  const perSecond = (field: 'sent' | 'answered'): number =>
    round(measured.reduce((sum, second) => sum + second[field], 0) / Math.max(1, measured.length));
  const problems: string[] = [];
  if (counts.dropped > 0) problems.push(`${counts.dropped} requests were dropped: too many waited for a connection`);
  if (counts.answered === 0) problems.push('nothing was answered');
  return {
    valid: problems.length === 0,
    problems,
    interrupted: run.interrupted,
    command,
    options,
    environment: environment(),
    startedAt: run.startedAt.toISOString(),
    elapsedS: round(elapsedMs / 1_000),
    rate: { wanted: options.rate, sent: perSecond('sent'), answered: perSecond('answered') },
    counts,
    unsettled: run.unsettled,
    latency: {
      all: summarize(all),
      first: summarize(first),
      retry: summarize(retry),
      hot: summarize(hot),
      cold: summarize(cold),
    },
    lateness: summarize(lateness),
    answers,
    cost: {
      cpuS: round(cpuUs / 1e6),
      cores: round(cpuUs / 1_000 / elapsedMs),
      cpuUsPerRequest: round(cpuUs / Math.max(1, counts.sent)),
    },
    seconds: run.seconds,
  };
}

/** `result.json`, `histograms.json` (to merge with others) and `plot.svg`. */
export function writeResult(directory: string, run: LoadRun, result: LoadResult): void {
  mkdirSync(directory, { recursive: true });
  const sparse = Object.fromEntries(Object.entries(run.histograms).map(([name, one]) => [name, toSparse(one)]));
  writeFileSync(join(directory, 'result.json'), `${JSON.stringify(result, undefined, 2)}\n`);
  writeFileSync(join(directory, 'histograms.json'), `${JSON.stringify(sparse)}\n`);
  writeFileSync(join(directory, 'plot.svg'), plot(result.seconds, titleOf(result)));
}

function titleOf({ options, latency, answers }: LoadResult): string {
  const [p50, p99, p999] = [latency.all.p50Ms, latency.all.p99Ms, latency.all.p999Ms].map((ms) => ms.toFixed(1));
  const compared = `${answers.different} of ${answers.compared} answers differ`;
  return `${options.rate} requests/s, seed ${options.seed}: p50 ${p50} ms, p99 ${p99} ms, p99.9 ${p999} ms; ${compared}`;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
