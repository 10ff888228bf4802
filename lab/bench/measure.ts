/** One run of the load generator against running processes, with what it cost whom. */
import { settleS } from './cases.ts';
import { runLoad, type LoadCall, type Orders } from './children.ts';
import { coresBetween, readCpu, stolenShare, type CpuReading } from './cpu.ts';
import type { LoadResult } from '../load/result.ts';
import { leastDisturbed, type Disturbable } from './undisturbed.ts';

export interface Target {
  orders: readonly Orders[];
  /** The pid of the server. */
  postgres: number;
  signal: AbortSignal;
}

/** Microseconds of CPU for each request, by process. */
export interface CpuUs {
  orders: number;
  postgres: number;
  load: number;
}

export interface Throughput {
  offered: number;
  /** Requests a second that were answered with 2xx. */
  okPerSecond: number;
  errors: number;
  cpuUs: CpuUs;
  /** Kept busy by whatever else runs here: what is above 0.1 disturbs. */
  otherCores: number;
  /** Of the time of all cores, what the host gave to others. */
  stolenShare: number;
}

export interface Latency extends Disturbable {
  rate: number;
  p50Ms: number;
  p99Ms: number;
  p999Ms: number;
  maxMs: number;
  /** Of all requests that were due, late or not. */
  okShare: number;
  /** How late the generator itself was with 1 % of its requests. */
  latenessP99Ms: number;
  cpuUs: CpuUs;
  otherCores: number;
  /** Measured too, and not counted, because the host stole too much of the time. */
  disturbed?: Latency[];
}

/** Each key once, and a UUIDv7, as the docs tell clients to make them. */
const likeOurClients = ['--retry-rate=0', '--key-version=7'];

/** What is answered each second when far more is asked for: the plateau of an overload, over 256 connections. */
export async function measureThroughput(
  target: Target,
  { seed, rate, warmupS, measuredS }: Pick<LoadCall, 'seed' | 'rate' | 'warmupS' | 'measuredS'>,
): Promise<Throughput> {
  // Two for each connection, so that none has to wait for its next request; the rest is dropped.
  const args = [...likeOurClients, '--max-waiting=512'];
  const { result, okPerSecond, cost } = await measure(target, { seed, warmupS, measuredS, rate, args });
  return { offered: rate, okPerSecond, errors: result.counts.errors, ...cost };
}

export async function measureLatency(
  target: Target,
  { seed, rate, measuredS }: Pick<LoadCall, 'seed' | 'rate' | 'measuredS'>,
): Promise<Latency> {
  // Whoever is 2 s behind has failed already, and the end need not wait for all that he still owes.
  const args = [...likeOurClients, `--max-waiting=${2 * rate}`];
  const { result, cost } = await measure(target, { seed, warmupS: settleS, measuredS, rate, args });
  const { latency, lateness, counts } = result;
  const { p50Ms, p99Ms, p999Ms, maxMs } = latency.all;
  const okShare = rounded(counts.ok / Math.max(1, counts.due), 6);
  return { rate, p50Ms, p99Ms, p999Ms, maxMs, okShare, latenessP99Ms: lateness.p99Ms, ...cost };
}

export interface Measured {
  result: LoadResult;
  okPerSecond: number;
  cost: Pick<Throughput, 'cpuUs' | 'otherCores' | 'stolenShare'>;
}

/** Of the windows that may be measured again the least disturbed. */
export async function undisturbed(
  attempts: number,
  measureOnce: (attempt: number) => Promise<Latency>,
): Promise<Latency> {
  const { counted, others } = await leastDisturbed(attempts, measureOnce);
  // What was not answered cannot be blamed on the host.
  const okShare = Math.min(...[counted, ...others].map((each) => each.okShare));
  return others.length > 0 ? { ...counted, okShare, disturbed: others } : counted;
}

/** The window is the whole seconds after the warm-up: the CPU is read when it begins and when it ends. */
export async function measure(
  { orders, postgres, signal }: Target,
  call: Pick<LoadCall, 'seed' | 'rate' | 'warmupS' | 'measuredS' | 'args'>,
): Promise<Measured> {
  const { warmupS, measuredS } = call;
  const readings: CpuReading<keyof CpuUs>[] = [];
  const result = await runLoad({
    ...call,
    urls: orders.map(({ url }) => url),
    signal,
    onSecond(second, load) {
      if (second !== warmupS && second !== warmupS + measuredS) return;
      const watched = {
        orders: { pids: orders.map(({ pid }) => pid) },
        postgres: { pids: [postgres], withChildren: true },
        load: { pids: [load] },
      } as const;
      readings.push(readCpu(watched));
    },
  });
  const [before, after] = readings;
  if (!before || !after) throw new Error(`the load generator ended after ${result.elapsedS} s, too early to measure`);
  const window = result.seconds.slice(warmupS, warmupS + measuredS);
  const ok = window.reduce((sum, { answered, errors }) => sum + Math.max(0, answered - errors), 0);
  const okPerSecond = rounded(ok / measuredS, 1);
  const { others, ...cores } = coresBetween(before, after);
  const us = (share: number): number => rounded((1e6 * share) / Math.max(1, okPerSecond), 1);
  const cpuUs = { orders: us(cores.orders), postgres: us(cores.postgres), load: us(cores.load) };
  const stolen = rounded(stolenShare(before, after), 5);
  return { result, okPerSecond, cost: { cpuUs, otherCores: rounded(others, 2), stolenShare: stolen } };
}

export function rounded(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
