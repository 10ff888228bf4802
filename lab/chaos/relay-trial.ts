/** One fault while rows are written and published, and the verdict. */
import assert from 'node:assert/strict';
import type { Supervised } from '../supervisor/process.ts';
import { judge, type Verdict } from './relay-verdict.ts';
import type { RelayWorld } from './relay-world.ts';
import { write } from './writers.ts';

export interface Stage {
  /** There, with three partitions. */
  topic: string;
  /** Of no other trial. */
  aggregates: string[];
  /** Starts a relay under this name; those that run in the end are told to stop, and must. */
  start(role: string, options?: { throughProxy?: boolean; args?: readonly string[] }): Promise<Supervised>;
}

export interface TrialOptions {
  /** Besides the topic that is there. */
  moreTopics?: readonly string[];
  /** By aggregate. Defaults to the topic that is there. */
  topicOf?(aggregate: string, stage: Stage): string;
  transactions?: number;
}

const startTimeoutMs = 20_000;

/**
 * `arm` starts relays and sets traps while nothing is written; what it answers runs beside the writers, to the end of the
 * fault.
 */
export async function relayTrial(
  world: RelayWorld,
  arm: (stage: Stage) => Promise<() => Promise<void>>,
  { moreTopics = [], topicOf, transactions = 150 }: TrialOptions = {},
): Promise<Verdict> {
  const topic = world.newName();
  await world.admin.createTopic(topic, { partitions: 3 });
  const relays: Supervised[] = [];
  const stage: Stage = {
    topic,
    aggregates: Array.from({ length: 12 }, (_, n) => `${topic}-${n}`),
    start: async (role, options) => {
      const relay = await world.startRelay(role, options);
      relays.push(relay);
      await relay.firstJsonLine(startTimeoutMs);
      return relay;
    },
  };
  try {
    const strike = await arm(stage);
    // A fault that strikes while nobody writes shows nothing.
    const over = new AbortController();
    const writing = write({
      database: world.database,
      topicOf: (aggregate) => topicOf?.(aggregate, stage) ?? topic,
      aggregates: stage.aggregates,
      transactions,
      until: over.signal,
    });
    await Promise.all([writing, strike().finally(() => over.abort())]);
    const verdict = await judge(world, [topic, ...moreTopics]);
    assert.ok(verdict.messages > 0);
    return verdict;
  } finally {
    await stopAll(relays.filter(({ running }) => running));
  }
}

async function stopAll(relays: readonly Supervised[]): Promise<void> {
  for (const relay of relays) relay.signal('SIGTERM');
  for (const relay of relays) relay.thaw(); // A trial that failed may have left one frozen, and that hears no signal.
  for (const relay of relays) assert.deepEqual(await relay.exited, { code: 0, signal: null }, relay.describe());
}
