/**
 * The relay beside writers: how long a row takes from its commit to the broker, whether the lag stays flat, and what bursts
 * do to it. Everything is seen from outside: what the writer says that it has committed, what the brokers say that they
 * have, and a consumer that reads each record.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { coresBetween, readCpu, stolenShare } from '../cpu.ts';
import { rounded } from '../measure.ts';
import { leastDisturbed, type Disturbable } from '../undisturbed.ts';
import { watchedGroups, type RelayCpuUs } from './drain.ts';
import { growthPerSecond, lags, secondsUntilFlat, timeOf, type Lag, type Seen } from './lag.ts';
import { bucketsOf, percentileBetween, type Buckets } from './metrics.ts';
import { beginningsMs, rowsOf, type Phase } from './phases.ts';
import { startReader, startRelay, startWriter, type Program, type Reader, type Writer } from './programs.ts';
import type { World } from './world.ts';

/** Rows a second at which the relay is judged. */
export const steadyRates = { latency: 1_000, flat: 5_000 } as const;
export const burstFactors = [2, 3] as const;
/** The lag is flat while the oldest row is no older than this; after a burst, when that has held for a second. */
export const flatness = { ageMs: 250, holdMs: 1_000 } as const;

export interface SteadyScale {
  warmS: number;
  /** At each of the two rates. */
  measuredS: number;
  burstS: number;
  /** After each burst, at the rate that must stay flat. */
  afterS: number;
  /** How often all of it is measured at most, where the host disturbs it. */
  attempts: number;
}

export interface SteadyLatency {
  /** From the commit to a consumer, which is later than to the broker. */
  p50Ms: number;
  p99Ms: number;
  maxMs: number;
  /** To the leader's log, by the broker's clock. */
  appendedP50Ms: number;
  appendedP99Ms: number;
  /** What the relay itself says: to the acknowledgement. */
  ownP50Ms: number;
  ownP99Ms: number;
  cpuUs: RelayCpuUs;
}

export interface Burst {
  /** As was asked for, and as the writer could. */
  wantedPerSecond: number;
  writtenPerSecond: number;
  highestRows: number;
  highestAgeMs: number;
  /** From the end of the burst, in seconds and in lengths of the burst; 9,999 if it was not seen. */
  flatAfterS: number;
  flatAfterBursts: number;
}

export interface SteadyRun extends Disturbable {
  latency: Record<string, SteadyLatency>;
  flat: { growthPerSecond: number; highestRows: number; highestAgeMs: number };
  bursts: Record<string, Burst>;
  missing: number;
  duplicates: number;
  writerLatenessP99Ms: number;
  otherCores: number;
  /** Measured too, and not counted, because the host stole too much of the time. */
  disturbed?: SteadyRun[];
}

export interface SteadyResult {
  run: SteadyRun;
  /** Seconds since the start, rows, ms: four a second. */
  series: [seconds: number, rows: number, ageMs: number][];
}

export interface SteadyCall {
  world: World;
  scale: SteadyScale;
  batch: number;
  /** What it publishes at most, in rows a second: bursts are multiples of that. */
  limit: number;
  signal: AbortSignal;
}

const lookEveryMs = 50;
const settleS = 1;

/** Judged by what the host stole while latencies were measured. */
export async function measureSteady(call: SteadyCall): Promise<SteadyResult> {
  const series = new Map<number, SteadyResult['series']>();
  const { counted, others } = await leastDisturbed(call.scale.attempts, async (attempt) => {
    const once = await measureOnce(call);
    series.set(attempt + 1, once.series);
    return once.run;
  });
  // What did not arrive cannot be blamed on the host.
  const missing = Math.max(...[counted, ...others].map((each) => each.missing));
  const run = { ...counted, missing, ...(others.length > 0 && { disturbed: others }) };
  return { run, series: series.get(counted.attempt!)! };
}

async function measureOnce(call: SteadyCall): Promise<SteadyResult> {
  const { world, scale, batch } = call;
  const { phases, readPhases } = planSteady(scale, call.limit);
  const database = await world.database({ shape: 'ours', shards: 1 }, 0);
  const topic = await world.topic();
  const where = { world, url: database.url, topic };
  const running: { stop(): Promise<void> }[] = [];
  const started = <T extends { stop(): Promise<void> }>(each: T): T => {
    running.push(each);
    return each;
  };
  try {
    const relay = started(await startRelay(where, { batch, shards: 1 }));
    const reader = started(await startReader(where, rowsOf(readPhases)));
    const writer = started(await startWriter(where, { shape: 'ours', phases }));
    const watched = await watch({ ...call, topic, phases, relay, reader, writer });
    return await conclude(phases, watched, writer, reader);
  } finally {
    await Promise.all(running.map(async (each) => each.stop()));
    await database.drop();
  }
}

/** Two phases at the rate whose latency counts, two at the rate that must stay flat, then bursts. */
export function planSteady({ warmS, measuredS, burstS, afterS }: SteadyScale, limit: number) {
  const readPhases: Phase[] = [
    { perSecond: steadyRates.latency, seconds: warmS },
    { perSecond: steadyRates.latency, seconds: measuredS },
    { perSecond: steadyRates.flat, seconds: settleS },
    { perSecond: steadyRates.flat, seconds: measuredS },
  ];
  const bursts = burstFactors.flatMap((factor): Phase[] => [
    { perSecond: Math.round(factor * limit), seconds: burstS },
    { perSecond: steadyRates.flat, seconds: afterS },
  ]);
  return { readPhases, phases: [...readPhases, ...bursts] };
}

interface Watching extends SteadyCall {
  topic: string;
  phases: readonly Phase[];
  relay: Program;
  reader: Reader;
  writer: Writer;
}

/** A reading of what is cumulative, at the beginning of a phase. */
interface Mark {
  cpu: ReturnType<typeof readCpu<keyof RelayCpuUs | 'writer' | 'reader'>>;
  own: Buckets;
}

interface Watched {
  published: Seen[];
  /** Of the phases that a reader reads, and the end of the last of them. */
  marks: Mark[];
}

async function watch({ world, topic, phases, relay, reader, writer, signal }: Watching): Promise<Watched> {
  const groups = {
    ...watchedGroups(world, relay.pid),
    writer: { pids: [writer.pid] },
    reader: { pids: [reader.pid] },
  } as const;
  const begins = beginningsMs(phases);
  const published: Seen[] = [];
  const marks: Mark[] = [];
  const endMs = writer.startMs + begins.at(-1)!;
  while (Date.now() < endMs) {
    signal.throwIfAborted();
    const count = await world.published(topic);
    published.push({ atMs: Date.now(), count });
    if (marks.length <= 4 && Date.now() >= writer.startMs + begins[marks.length]!) {
      marks.push({ cpu: readCpu(groups), own: await ownLatency(relay) });
    }
    await delay(lookEveryMs);
  }
  return { published, marks };
}

async function ownLatency({ admin }: Program): Promise<Buckets> {
  const text = await (await fetch(`${admin}/metrics`)).text();
  return bucketsOf(text, 'relay_append_to_broker_seconds');
}

async function conclude(
  phases: readonly Phase[],
  { published, marks }: Watched,
  writer: Writer,
  reader: Reader,
): Promise<SteadyResult> {
  const { latenessP99Ms } = await writer.ended;
  // All that it waits for was written long ago. If something is missing it would wait for ever.
  await Promise.race([reader.ended, delay(5_000).then(() => reader.stop())]);
  const arrivals = await reader.ended;
  const samples = lags(writer.committed, published);
  const begins = beginningsMs(phases).map((ms) => writer.startMs + ms);
  const within = (phase: number): Lag[] =>
    samples.filter(({ atMs }) => atMs >= begins[phase]! && atMs < begins[phase + 1]!);
  const latencyIn = (phase: number): SteadyLatency => {
    const [before, after] = [marks[phase]!, marks[phase + 1]!];
    const { others: _, ...cores } = coresBetween(before.cpu, after.cpu);
    const us = (share: number): number => rounded((1e6 * share) / phases[phase]!.perSecond, 1);
    const own = (share: number): number => rounded(1_000 * (percentileBetween(before.own, after.own, share) ?? 0), 1);
    const [arrived, appended] = [arrivals.arrived[phase], arrivals.appended[phase]];
    return {
      p50Ms: arrived?.p50Ms ?? Infinity,
      p99Ms: arrived?.p99Ms ?? Infinity,
      maxMs: arrived?.maxMs ?? Infinity,
      appendedP50Ms: appended?.p50Ms ?? Infinity,
      appendedP99Ms: appended?.p99Ms ?? Infinity,
      ownP50Ms: own(0.5),
      ownP99Ms: own(0.99),
      cpuUs: { relay: us(cores.relay), postgres: us(cores.postgres), brokers: us(cores.brokers) },
    };
  };
  const burstIn = (phase: number): Burst => {
    // When its rows were really there, which may be later than they were due.
    const [beganMs, endedMs] = [phase, phase + 1].map((n) => timeOf(writer.committed, rowsOf(phases.slice(0, n))));
    const from = (ms: number): Lag[] => samples.filter(({ atMs }) => atMs >= ms && atMs < begins[phase + 2]!);
    const seconds = Math.max(0.001, (endedMs! - beganMs!) / 1_000);
    const flatAfterS = secondsUntilFlat(from(endedMs!), flatness);
    return {
      wantedPerSecond: phases[phase]!.perSecond,
      writtenPerSecond: Math.round(rowsOf(phases.slice(phase, phase + 1)) / seconds),
      highestRows: highest(from(beganMs!), ({ rows }) => rows),
      highestAgeMs: highest(from(beganMs!), ({ ageMs }) => ageMs),
      flatAfterS: orNever(flatAfterS),
      flatAfterBursts: orNever(flatAfterS / phases[phase]!.seconds),
    };
  };
  const flat = within(3);
  const run: SteadyRun = {
    latency: { [steadyRates.latency]: latencyIn(1), [steadyRates.flat]: latencyIn(3) },
    flat: {
      growthPerSecond: rounded(growthPerSecond(flat), 1),
      highestRows: highest(flat, ({ rows }) => rows),
      highestAgeMs: highest(flat, ({ ageMs }) => ageMs),
    },
    bursts: Object.fromEntries(burstFactors.map((factor, n) => [factor, burstIn(4 + 2 * n)])),
    missing: arrivals.missing,
    duplicates: arrivals.duplicates,
    writerLatenessP99Ms: latenessP99Ms,
    otherCores: rounded(coresBetween(marks[0]!.cpu, marks[4]!.cpu).others, 2),
    stolenShare: rounded(stolenShare(marks[1]!.cpu, marks[4]!.cpu), 5),
  };
  return { run, series: seriesOf(samples, writer.startMs) };
}

/** A number that JSON has, and that no bar lets pass. */
function orNever(value: number): number {
  return Number.isFinite(value) ? rounded(value, 2) : 9_999;
}

function highest(samples: readonly Lag[], of: (sample: Lag) => number): number {
  return samples.reduce((most, sample) => Math.max(most, of(sample)), 0);
}

/** The worst of each quarter of a second. */
function seriesOf(samples: readonly Lag[], startMs: number): SteadyResult['series'] {
  const quarters = Map.groupBy(samples, ({ atMs }) => Math.floor((atMs - startMs) / 250));
  return [...quarters]
    .filter(([quarter]) => quarter >= 0)
    .map(([quarter, those]) => [quarter / 4, highest(those, ({ rows }) => rows), highest(those, ({ ageMs }) => ageMs)]);
}
