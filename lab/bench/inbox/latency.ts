/**
 * From the commit of an order to the commit of its charge: a writer, a real relay, three brokers, real payments. The time is
 * what payments itself says, over the measured phases only.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { startServing } from '../children.ts';
import { coresBetween, readCpu, stolenShare, type CpuReading } from '../cpu.ts';
import { rounded } from '../measure.ts';
import { leastDisturbed, type Disturbable } from '../undisturbed.ts';
import { bucketsOf, percentileBetween, type Buckets } from '../relay/metrics.ts';
import { beginningsMs, phasesText, rowsOf, type Phase } from '../relay/phases.ts';
import { startRelay } from '../relay/programs.ts';
import type { Database, World } from '../relay/world.ts';
import type { LatencyScale } from './cases.ts';
import { startPayments, type ConsumerProgram } from './programs.ts';

/** Orders a second at which it is judged; the higher first, so that brokers and programs are warm at the lower. */
export const latencyRates = [5_000, 1_000] as const;

export interface LatencyRun {
  p50Ms: number;
  p99Ms: number;
  /** Of that, until the brokers have acknowledged it: what the relay says. */
  relayP50Ms: number;
  relayP99Ms: number;
  /** From a received batch to its commit: what payments says. */
  batchP50Ms: number;
  /** Microseconds for each order. */
  cpuUs: { payments: number; relay: number; postgres: number; brokers: number };
}

export interface LatencyRound extends Disturbable {
  /** By the rate. */
  rates: Record<string, LatencyRun>;
  /** Orders that were charged twice or not at all. */
  wrongCharges: number;
  writerLatenessP99Ms: number;
  otherCores: number;
  /** Measured too, and not counted, because the host stole too much of the time. */
  disturbed?: LatencyRound[];
}

export interface LatencyCall {
  world: World;
  scale: LatencyScale;
  signal: AbortSignal;
  say(text: string): void;
}

type Who = keyof LatencyRun['cpuUs'] | 'writer';

/** A reading of what is cumulative. */
interface Mark {
  cpu: CpuReading<Who>;
  effect: Buckets;
  relayed: Buckets;
  batch: Buckets;
}

/**
 * Of the relay. Brokers that share two cores with everything else cost more for each batch than for its messages, so what
 * waits a little longer for its turn is sooner at its end.
 */
const pollIntervalMs = 25;
const settleS = 1;
/** Behind each rate: until all of it is charged, or what is slowest would not count. An order a second is as good as none. */
const pause = { perSecond: 1, seconds: 1 };
const warmPerSecond = 2_000;
/** After the last order: whoever is not charged by then never will be. */
const lastWithinMs = 30_000;
let groups = 0;

export async function measureLatency(call: LatencyCall): Promise<LatencyRound> {
  const { counted, others } = await leastDisturbed(call.scale.attempts, async () => measureOnce(call));
  // A wrong charge cannot be blamed on the host.
  const wrongCharges = [counted, ...others].reduce((sum, each) => sum + each.wrongCharges, 0);
  return { ...counted, wrongCharges, ...(others.length > 0 && { disturbed: others }) };
}

async function measureOnce({ world, scale, signal, say }: LatencyCall): Promise<LatencyRound> {
  const phases = planLatency(scale);
  const running: { stop(): Promise<void> }[] = [];
  const started = <T extends { stop(): Promise<void> }>(each: T): T => {
    running.push(each);
    return each;
  };
  const databases: Database[] = [];
  try {
    const topic = await world.topic();
    const newDatabase = async (): Promise<Database> => {
      const database = await world.database({ shape: 'ours', shards: 1 }, 0);
      databases.push(database);
      return database;
    };
    const [orders, charges] = [await newDatabase(), await newDatabase()];
    const relay = started(
      await startRelay({ world, url: orders.url, topic }, { batch: 500, shards: 1, pollIntervalMs }),
    );
    const group = `bench-latency-${(groups += 1)}`;
    const payments = started(await startPayments({ world, topic, group }, charges, 'set'));
    const writer = started(await startWriter(orders, topic, phases));
    const groupsOfCpu = {
      payments: { pids: [payments.pid] },
      relay: { pids: [relay.pid] },
      postgres: { pids: [world.postgres.pid], withChildren: true },
      brokers: { pids: world.kafka.brokers.map(({ pid }) => pid) },
      writer: { pids: [writer.pid] },
    } as const;
    const mark = async (): Promise<Mark> => {
      const cpu = readCpu<Who>(groupsOfCpu);
      const [ofPayments, ofRelay] = await Promise.all([pageOf(payments.admin), pageOf(relay.admin ?? '')]);
      return {
        cpu,
        effect: bucketsOf(ofPayments, 'payments_commit_to_effect_seconds'),
        relayed: bucketsOf(ofRelay, 'relay_append_to_broker_seconds'),
        batch: bucketsOf(ofPayments, 'payments_batch_seconds'),
      };
    };
    const marks = await watch({ phases, startMs: writer.startMs, mark, signal });
    const { latenessP99Ms } = await writer.ended;
    const isWhole = await untilCharged(payments, rowsOf(phases), signal);
    if (!isWhole) say(`latency: not all were charged. Payments: ${payments.said()} The relay: ${relay.said()}`);
    return {
      ...summary(marks, await mark()),
      wrongCharges: await countWrongCharges(charges, rowsOf(phases)),
      writerLatenessP99Ms: latenessP99Ms,
    };
  } finally {
    await Promise.all(running.map(async (each) => each.stop()));
    for (const database of databases) await database.drop();
  }
}

/** Faster at first, until V8 has compiled what is hot; then each rate, a moment before anything counts. */
export function planLatency({ warmS, measuredS }: Pick<LatencyScale, 'warmS' | 'measuredS'>): Phase[] {
  const rates = latencyRates.flatMap((perSecond): Phase[] => [
    { perSecond, seconds: settleS },
    { perSecond, seconds: measuredS },
    pause,
  ]);
  return [{ perSecond: warmPerSecond, seconds: warmS }, ...rates];
}

/** At the beginning of each phase, and at the end of the last. */
async function watch({
  phases,
  startMs,
  mark,
  signal,
}: {
  phases: readonly Phase[];
  startMs: number;
  mark(): Promise<Mark>;
  signal: AbortSignal;
}): Promise<Mark[]> {
  const marks: Mark[] = [];
  for (const beginMs of beginningsMs(phases)) {
    const waitMs = startMs + beginMs - Date.now();
    if (waitMs > 0) await delay(waitMs, undefined, { signal });
    marks.push(await mark());
  }
  return marks;
}

function summary(marks: readonly Mark[], atLast: Mark): Pick<LatencyRound, 'rates' | 'otherCores' | 'stolenShare'> {
  const rates = latencyRates.map((rate, n) => {
    const phase = 3 * n + 2;
    const [before, after] = [marks[phase]!, marks[phase + 1]!];
    const end = n === latencyRates.length - 1 ? atLast : marks[phase + 2]!;
    const cores = coresBetween(before.cpu, after.cpu);
    const us = (share: number): number => rounded((1e6 * share) / rate, 1);
    const ms = (of: 'effect' | 'relayed' | 'batch', share: number): number =>
      rounded(1_000 * (percentileBetween(before[of], end[of], share) ?? Infinity), 1);
    const { payments, relay, postgres, brokers } = cores;
    const cpuUs = { payments: us(payments), relay: us(relay), postgres: us(postgres), brokers: us(brokers) };
    const run: LatencyRun = {
      p50Ms: ms('effect', 0.5),
      p99Ms: ms('effect', 0.99),
      relayP50Ms: ms('relayed', 0.5),
      relayP99Ms: ms('relayed', 0.99),
      batchP50Ms: ms('batch', 0.5),
      cpuUs,
    };
    return [String(rate), run] as const;
  });
  const [first, last] = [marks[2]!.cpu, marks.at(-2)!.cpu];
  return {
    rates: Object.fromEntries(rates),
    otherCores: rounded(coresBetween(first, last).others, 2),
    stolenShare: rounded(stolenShare(first, last), 5),
  };
}

async function pageOf(admin: string): Promise<string> {
  return (await fetch(`${admin}/metrics`)).text();
}

async function untilCharged(payments: ConsumerProgram, orders: number, signal: AbortSignal): Promise<boolean> {
  const deadline = performance.now() + lastWithinMs;
  while ((await payments.consumed()) < orders) {
    signal.throwIfAborted();
    if (payments.hasEnded()) throw new Error(`payments has ended: ${payments.said()}`);
    // How many are missing is a bar.
    if (performance.now() > deadline) return false;
    await delay(50);
  }
  return true;
}

async function countWrongCharges({ client }: Database, expected: number): Promise<number> {
  const { rows } = await client.query<{ all: number; orders: number }>(
    'SELECT count(*)::int AS all, count(DISTINCT order_id)::int AS orders FROM charges',
  );
  const { all, orders } = rows[0]!;
  return all - orders + Math.abs(expected - orders);
}

interface Writer {
  pid: number;
  startMs: number;
  ended: Promise<{ orders: number; latenessP99Ms: number }>;
  stop(): Promise<void>;
}

async function startWriter({ url }: Database, topic: string, phases: readonly Phase[]): Promise<Writer> {
  let result: { orders: number; latenessP99Ms: number } | undefined;
  const args = [`--topic=${topic}`, `--phases=${phasesText(phases)}`];
  const { child, ready } = await startServing('lab/bench/inbox/order-writer.ts', args, {
    env: { DATABASE_URL: url },
    onLine: (line) => {
      if ('result' in line) result = line['result'] as typeof result;
    },
  });
  const ended = child.ended.then((code) => {
    if (result) return result;
    throw new Error(`the writer ended with ${code} and without a result: ${child.said()}`);
  });
  ended.catch(() => {}); // Whoever waits for it hears of it.
  return { pid: child.pid, startMs: Number(ready['startMs']), ended, stop: child.stop };
}
