/** How fast a program turns the messages of a topic into committed charges, and what that costs whom. */
import { setTimeout as delay } from 'node:timers/promises';
import { coresBetween, readCpu, type CpuReading } from '../cpu.ts';
import { rounded } from '../measure.ts';
import type { Database, World } from '../relay/world.ts';
import type { ConsumerProgram } from './programs.ts';
import type { FilledTopic } from './topic.ts';

/** Microseconds of CPU for each message. */
export interface ConsumeCpuUs {
  node: number;
  /** The whole server. */
  postgres: number;
  /** All three. */
  brokers: number;
}

export interface ConsumeRun {
  perSecond: number;
  /** How many were consumed while it was measured. */
  messages: number;
  cpuUs: ConsumeCpuUs;
  /** Orders that were charged twice; and, if all messages were consumed, those that were not charged. */
  wrongCharges: number;
  otherCores: number;
}

export interface ConsumeCall {
  world: World;
  /** None for the ceiling. */
  database: Database | undefined;
  topic: FilledTopic;
  warmS: number;
  capS: number;
  start(): Promise<ConsumerProgram>;
  /** In which table its charges are; none for the ceiling. */
  charges: string | undefined;
  signal: AbortSignal;
}

const lookEveryMs = 50;
/** Before anything counts: a quarter of the messages, or the time for that, until V8 has compiled what is hot. */
const warmShare = 0.25;
/** Besides the time that it is measured: whoever has not come to its end by then never will. */
const allWithinMs = 60_000;

interface Moment {
  cpu: CpuReading<keyof ConsumeCpuUs>;
  consumed: number;
}

export async function measureConsume(call: ConsumeCall): Promise<ConsumeRun> {
  const program = await call.start();
  let moments: [Moment, Moment];
  try {
    moments = await watch(call, program);
  } finally {
    await program.stop();
  }
  const [begin, end] = moments;
  const wrongCharges = await countWrongCharges(call, end.consumed >= call.topic.messages);
  return { ...costBetween(begin, end), wrongCharges };
}

function costBetween(begin: Moment, end: Moment): Omit<ConsumeRun, 'wrongCharges'> {
  const messages = end.consumed - begin.consumed;
  const seconds = (end.cpu.atMs - begin.cpu.atMs) / 1_000;
  const { others, ...cores } = coresBetween(begin.cpu, end.cpu);
  const us = (share: number): number => rounded((1e6 * share * seconds) / Math.max(1, messages), 1);
  return {
    perSecond: rounded(messages / seconds, 1),
    messages,
    cpuUs: { node: us(cores.node), postgres: us(cores.postgres), brokers: us(cores.brokers) },
    otherCores: rounded(others, 2),
  };
}

export function watchedGroups(world: World, node: number) {
  return {
    node: { pids: [node] },
    postgres: { pids: [world.postgres.pid], withChildren: true },
    brokers: { pids: world.kafka.brokers.map(({ pid }) => pid) },
  } as const;
}

async function watch({ world, topic, warmS, capS, signal }: ConsumeCall, program: ConsumerProgram) {
  const groups = watchedGroups(world, program.pid);
  const startedAt = performance.now();
  let firstAt: number | undefined;
  let begin: Moment | undefined;
  let before: Moment = { cpu: readCpu(groups), consumed: 0 };
  for (let seen = 0; ;) {
    signal.throwIfAborted();
    const consumed = await program.consumed();
    const now = performance.now();
    // All of a short topic may come between two looks: then there is no other moment to begin with.
    if (!begin && consumed >= topic.messages) begin = before;
    // A batch is seen when it is committed: both ends are such moments, or up to a batch would be missing or too much.
    const isMoment = consumed > seen;
    seen = consumed;
    if (begin && isMoment && (consumed >= topic.messages || now - begin.cpu.atMs >= 1_000 * capS)) {
      return [begin, { cpu: readCpu(groups), consumed }] satisfies [Moment, Moment];
    }
    if (consumed > 0) firstAt ??= now;
    const isWarm = consumed >= warmShare * topic.messages || now - (firstAt ?? now) >= 1_000 * warmS;
    if (!begin) before = { cpu: readCpu(groups), consumed };
    if (!begin && isMoment && isWarm) begin = before;
    if (program.hasEnded() || now - startedAt > allWithinMs + 1_000 * (warmS + capS)) {
      throw new Error(`only ${consumed} of ${topic.messages} messages were consumed: ${program.said()}`);
    }
    await delay(lookEveryMs);
  }
}

async function countWrongCharges(
  { database, charges, topic }: Pick<ConsumeCall, 'database' | 'charges' | 'topic'>,
  isWhole: boolean,
): Promise<number> {
  if (!database || charges === undefined) return 0;
  const { rows } = await database.client.query<{ all: number; orders: number }>(
    `SELECT count(*)::int AS all, count(DISTINCT order_id)::int AS orders FROM ${charges}`,
  );
  const { all, orders } = rows[0]!;
  return all - orders + (isWhole ? Math.abs(topic.orders - orders) : 0);
}
