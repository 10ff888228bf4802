import { randomUUID } from 'node:crypto';
import { TwiceproofError } from '../errors.ts';
import type {
  AssignedLane,
  Delivery,
  Lane,
  OutgoingRecord,
  Position,
  Publisher,
  PublishOutcome,
  SubscribeOptions,
  Subscription,
  TopicNeeds,
  TopicProblem,
  Transport,
} from '../transport.ts';
import {
  bufferDelivery,
  createLane,
  createReceiver,
  isRevoked,
  laneName,
  settleInLane,
  startOf,
  type LaneState,
  type Receiver,
} from './lanes.ts';
import { partitionFor } from './partitioner.ts';
import { encodeRecord, keyId } from './record.ts';

/** Kafka's default for `max.message.bytes`. */
const defaultMaxMessageBytes = 1_048_588;
/** How much of a lane waits outside the log, so that pausing and revoking are tried in tests as with a real broker. */
const bufferedRecords = 500;
const assignmentRetryMs = 100;

type Kept = Pick<Delivery, 'value' | 'headers'> & { key: Uint8Array };

interface Topic {
  id: string;
  maxMessageBytes: number;
  partitions: Kept[][];
}

interface Group {
  generation: number;
  members: Member[];
  /** By lane name. */
  committed: Map<string, bigint>;
}

interface Member {
  options: SubscribeOptions;
  receiver: Receiver;
  /** Callbacks run one after another, also across rebalances. */
  changes: Promise<void>;
}

/** Topics, records and groups that the transports of one process share. Nothing survives the process. */
export interface MemoryBroker {
  createTopic(name: string, options: { partitions: number; maxMessageBytes?: number }): void;
  transport(): MemoryTransport;
}

export interface MemoryTransport extends Transport {
  /** Its members vanish as if their process had been killed: nothing is settled, nobody is told. */
  crash(): void;
}

/** An in-process broker with the semantics of Kafka's: lanes, groups, rebalances, positions, size limits. */
export function createMemoryBroker(): MemoryBroker {
  const topics = new Map<string, Topic>();
  const groups = new Map<string, Group>();

  return {
    createTopic(name, { partitions, maxMessageBytes = defaultMaxMessageBytes }) {
      topics.set(name, {
        id: randomUUID(),
        maxMessageBytes,
        partitions: Array.from({ length: partitions }, () => []),
      });
    },
    transport() {
      const members = new Set<Member>();
      const publishers = new Set<Publisher>();
      return {
        name: 'memory',
        features: new Set(['positions', 'seek', 'pause', 'assignment', 'topics'] as const),
        publisher() {
          const publisher = createPublisher(topics, () => wakeAll(groups));
          publishers.add(publisher);
          return publisher;
        },
        async subscribe(options) {
          for (const topic of options.topics) {
            if (!topics.has(topic)) throw unknownTopic(topic);
          }
          const group = groupNamed(groups, options.group);
          const member = createMember(topics, options);
          members.add(member);
          group.members.push(member);
          rebalance(topics, group);
          try {
            await member.changes;
          } catch (error) {
            dropMember(topics, group, member);
            throw error;
          }
          return subscriptionOf(topics, group, member);
        },
        topicProblems: async (names, needs) => names.flatMap((name) => problemsOf(topics, name, needs)),
        async close() {
          for (const publisher of publishers) await publisher.close();
          for (const member of members) await leaveGroup(topics, groupNamed(groups, member.options.group), member);
        },
        crash() {
          for (const member of members) dropMember(topics, groupNamed(groups, member.options.group), member);
        },
      };
    },
  };
}

function createPublisher(topics: Map<string, Topic>, wake: () => void): Publisher {
  let closed = false;
  return {
    async publish(records) {
      if (closed) throw new TwiceproofError('TP_CLOSED', 'publish on a closed publisher');
      const blocked = new Set<string>();
      const outcomes = records.map((record) => append(topics, blocked, record));
      wake();
      return outcomes;
    },
    async close() {
      closed = true;
    },
  };
}

function append(topics: Map<string, Topic>, blocked: Set<string>, record: OutgoingRecord): PublishOutcome {
  if (blocked.has(keyId(record))) return { outcome: 'withheld' };
  const topic = topics.get(record.topic);
  if (!topic) return { outcome: 'refused', error: unknownTopic(record.topic) };
  const encoded = encodeRecord(record, topic.maxMessageBytes);
  if (encoded instanceof TwiceproofError) {
    blocked.add(keyId(record));
    return { outcome: 'rejected', error: encoded };
  }
  const partition = partitionFor(encoded.key, topic.partitions.length);
  const log = topic.partitions[partition]!;
  // A copy, because the caller may use its buffer again once it has its answer.
  const headers = Object.entries(record.headers ?? {}).map(([name, text]) => [name, Buffer.from(text)] as const);
  log.push({ key: encoded.key, value: Buffer.from(record.value), headers });
  return { outcome: 'acknowledged', position: { topic: record.topic, partition, offset: BigInt(log.length - 1) } };
}

/** Nothing is kept beyond the process, so no topic is weaker than another. */
function problemsOf(topics: Map<string, Topic>, name: string, { recordBytes }: TopicNeeds): TopicProblem[] {
  const topic = topics.get(name);
  if (!topic) return [{ topic: name, kind: 'missing', detail: 'it does not exist' }];
  if (topic.maxMessageBytes >= recordBytes) return [];
  return [{ topic: name, kind: 'small', detail: `it takes ${topic.maxMessageBytes} bytes, not ${recordBytes}` }];
}

function createMember(topics: Map<string, Topic>, options: SubscribeOptions): Member {
  const receiver = createReceiver({
    refill: () => receiver.lanes.forEach((state) => refill(topics, state)),
  });
  return { options, receiver, changes: Promise.resolve() };
}

function refill(topics: Map<string, Topic>, state: LaneState): void {
  const log = topics.get(state.lane.topic)!.partitions[state.lane.partition]!;
  while (state.buffer.length < bufferedRecords && state.next < log.length) {
    bufferDelivery(state, toDelivery(state, log[Number(state.next)]!));
  }
}

function toDelivery(state: LaneState, { key, value, headers }: Kept): Delivery & { position: Position } {
  return {
    lane: state.lane,
    key,
    value,
    headers,
    position: { ...state.lane, offset: state.next },
  };
}

/** Every lane of the group is taken away, then all are dealt out again in turn: what Kafka's eager protocol does. */
function rebalance(topics: Map<string, Topic>, group: Group): void {
  group.generation += 1;
  const shares = new Map(group.members.map((member) => [member, [] as Lane[]]));
  let turn = 0;
  for (const topic of new Set(group.members.flatMap((member) => member.options.topics))) {
    const takers = group.members.filter((member) => member.options.topics.includes(topic));
    topics.get(topic)!.partitions.forEach((_, partition) => {
      shares.get(takers[turn++ % takers.length]!)!.push({ topic, partition });
    });
  }
  for (const [member, lanes] of shares) changeLanes(topics, group, member, lanes);
}

function changeLanes(topics: Map<string, Topic>, group: Group, member: Member, lanes: Lane[]): void {
  const { generation } = group;
  const revoked = member.receiver.revokeAll();
  const before = member.changes;
  member.changes = (async () => {
    await before.catch(() => {});
    if (revoked.length > 0) await member.options.onRevoked?.(revoked);
    await assignLanes(topics, group, member, lanes, generation);
  })().catch((cause: unknown) => {
    throw assignmentFailed(cause);
  });
  // Whoever joins awaits the change and gets its error; for the others it is trouble, and tried again.
  member.changes.catch((error: TwiceproofError) => {
    member.options.onTrouble?.(error);
    setTimeout(() => {
      if (generation === group.generation && group.members.includes(member)) rebalance(topics, group);
    }, assignmentRetryMs).unref();
  });
}

async function assignLanes(
  topics: Map<string, Topic>,
  group: Group,
  member: Member,
  lanes: Lane[],
  generation: number,
) {
  const assigned = lanes.map((lane) => describe(topics, group, lane));
  const chosen = (assigned.length > 0 && (await member.options.onAssigned?.(assigned))) || [];
  const states = await Promise.all(
    assigned.map(async (lane) => {
      const freshEnd = async () => describe(topics, group, lane).end;
      return createLane(bare(lane), await startOf(lane, chosen, freshEnd, member.options.onTrouble));
    }),
  );
  // A later rebalance has a change of its own behind this one.
  if (generation === group.generation) member.receiver.assign(states);
}

function describe(topics: Map<string, Topic>, group: Group, lane: Lane): AssignedLane {
  const topic = topics.get(lane.topic)!;
  return {
    ...lane,
    topicId: topic.id,
    committed: group.committed.get(laneName(lane)),
    earliest: 0n,
    end: BigInt(topic.partitions[lane.partition]!.length),
  };
}

function bare({ topic, partition }: AssignedLane): Lane {
  return { topic, partition };
}

function subscriptionOf(topics: Map<string, Topic>, group: Group, member: Member): Subscription {
  const { receiver } = member;
  return {
    receive: (options) => receiver.receive(options),
    async settle(deliveries) {
      let answer: 'settled' | 'stale' = 'settled';
      for (const [state, those] of receiver.byLane(deliveries)) {
        if (!state || isRevoked(state)) {
          answer = 'stale';
          continue;
        }
        const position = settleInLane(state, those);
        if (position !== undefined) group.committed.set(laneName(state.lane), position);
        receiver.wake();
      }
      return answer;
    },
    pause: (lane) => receiver.setPaused(lane, true),
    resume: (lane) => receiver.setPaused(lane, false),
    close: () => leaveGroup(topics, group, member),
  };
}

async function leaveGroup(topics: Map<string, Topic>, group: Group, member: Member): Promise<void> {
  const revoked = dropMember(topics, group, member);
  if (revoked.length > 0) await member.options.onRevoked?.(revoked);
}

/** Without a word to the member. Answers the lanes that it had. */
function dropMember(topics: Map<string, Topic>, group: Group, member: Member): Lane[] {
  member.receiver.close();
  if (!group.members.includes(member)) return [];
  group.members = group.members.filter((other) => other !== member);
  const revoked = member.receiver.revokeAll();
  rebalance(topics, group);
  return revoked;
}

function groupNamed(groups: Map<string, Group>, name: string): Group {
  const group = groups.get(name) ?? { generation: 0, members: [], committed: new Map() };
  groups.set(name, group);
  return group;
}

function wakeAll(groups: Map<string, Group>): void {
  for (const group of groups.values()) group.members.forEach((member) => member.receiver.wake());
}

function assignmentFailed(cause: unknown): TwiceproofError {
  return new TwiceproofError('TP_ASSIGNMENT_FAILED', `onAssigned or onRevoked failed: ${String(cause)}`, { cause });
}

function unknownTopic(name: string): TwiceproofError {
  return new TwiceproofError('TP_TOPIC_UNKNOWN', `there is no topic ${name}`);
}
