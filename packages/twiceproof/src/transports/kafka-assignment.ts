import { setTimeout as delay } from 'node:timers/promises';
import type { Consumer } from '@platformatic/kafka';
import { TwiceproofError } from '../errors.ts';
import type { AssignedLane, Lane, SubscribeOptions } from '../transport.ts';
import { doneWithin } from './kafka-client.ts';
import { toTwiceproofError } from './kafka-errors.ts';
import type { FetchedLane } from './kafka-fetcher.ts';
import { createLane, startOf, type Receiver } from './lanes.ts';

const askWithinMs = 10_000;
const insistMs = 15_000;
const insistPauseMs = 250;

export interface AssignmentParts {
  member: Consumer;
  worker: Consumer;
  options: SubscribeOptions;
  receiver: Receiver;
  /** There are new lanes. */
  assigned(): void;
  failed(reason: TwiceproofError): void;
}

/**
 * What the group has given us. Lanes are taken away at once, so that nothing more is settled; the
 * caller's callbacks follow in their turn, one after another. Each change makes an assignment that is
 * still being prepared worthless: it is dropped when it gets there.
 */
export function createAssignment({ member, worker, options, receiver, assigned, failed }: AssignmentParts) {
  let version = 0;
  let changes: Promise<void> = Promise.resolve();

  function change(work: () => Promise<void>): void {
    changes = changes.then(work).catch((error: unknown) => failed(toTwiceproofError(error, 'taking over lanes')));
  }

  function revoke(): void {
    version += 1;
    const gone = receiver.revokeAll();
    if (gone.length > 0) change(() => calling(async () => await options.onRevoked?.(gone)));
  }

  function assign(): void {
    revoke();
    const mine = version;
    const { memberId, generationId } = member;
    const lanes = (member.assignments ?? []).flatMap(({ topic, partitions }) =>
      partitions.map((partition) => ({ topic, partition })),
    );
    change(async () => {
      const started = await startLanes(worker, options, lanes, () => mine === version);
      if (!started || mine !== version) return;
      worker.memberId = memberId;
      worker.generationId = generationId;
      receiver.assign(started);
      assigned();
    });
  }

  return {
    revoke,
    assign,
    /** When all that has happened until now is worked off, callbacks included. */
    settled: () => changes,
  };
}

async function startLanes(
  worker: Consumer,
  options: SubscribeOptions,
  lanes: readonly Lane[],
  stillOurs: () => boolean,
): Promise<FetchedLane[] | undefined> {
  if (lanes.length === 0) return [];
  const described = await insist(stillOurs, () => describeLanes(worker, lanes));
  if (!stillOurs()) return undefined;
  const chosen =
    (await calling(async () => await options.onAssigned?.(described.map(({ assigned }) => assigned)))) ?? [];
  return await Promise.all(
    described.map(async ({ assigned, topicPartitions }) => {
      const { topic, partition, topicId } = assigned;
      const start = await startOf(assigned, chosen, () => endOf(worker, assigned), options.onTrouble);
      return { ...createLane({ topic, partition }, start), topicId, topicPartitions };
    }),
  );
}

/**
 * Tries again for a while what fails when a leader has just died: leaving the group instead would
 * disturb every member, once for each attempt, until a new leader is there.
 */
async function insist<T>(stillWanted: () => boolean, work: () => Promise<T>): Promise<T> {
  const deadline = performance.now() + insistMs;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!stillWanted() || performance.now() > deadline) throw error;
      await delay(insistPauseMs);
    }
  }
}

async function describeLanes(worker: Consumer, lanes: readonly Lane[]) {
  const byTopic = Map.groupBy(lanes, ({ topic }) => topic);
  const topics = [...byTopic.keys()];
  const partitions = Object.fromEntries([...byTopic].map(([topic, those]) => [topic, those.map((l) => l.partition)]));
  const asked = topics.map((topic) => ({ topic, partitions: partitions[topic]! }));
  const questions = Promise.all([
    worker.metadata({ topics, retries: 3 }),
    worker.listCommittedOffsets({ topics: asked }),
    worker.listOffsets({ topics, partitions, timestamp: -2n }),
    worker.listOffsets({ topics, partitions, timestamp: -1n }),
  ]);
  const [metadata, committed, earliest, end] = await doneWithin(askWithinMs, 'asking for positions', questions);
  return lanes.map(({ topic, partition }) => {
    const { id: topicId, partitionsCount: topicPartitions } = metadata.topics.get(topic)!;
    const settled = committed.get(topic)?.[partition];
    const assigned: AssignedLane = {
      topic,
      partition,
      topicId,
      committed: settled === undefined || settled < 0n ? undefined : settled,
      earliest: earliest.get(topic)![partition]!,
      end: end.get(topic)![partition]!,
    };
    return { assigned, topicPartitions };
  });
}

async function endOf(worker: Consumer, { topic, partition }: Lane): Promise<bigint> {
  const question = worker.listOffsets({ topics: [topic], partitions: { [topic]: [partition] }, timestamp: -1n });
  return (await doneWithin(askWithinMs, 'asking for the end', question)).get(topic)![partition]!;
}

async function calling<T>(callback: () => Promise<T>): Promise<T> {
  try {
    return await callback();
  } catch (cause) {
    throw new TwiceproofError('TP_ASSIGNMENT_FAILED', `onAssigned or onRevoked failed: ${String(cause)}`, { cause });
  }
}
