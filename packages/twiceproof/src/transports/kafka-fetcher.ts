import { setTimeout as delay } from 'node:timers/promises';
import type { ConnectionPool, Consumer } from '@platformatic/kafka';
import type { TwiceproofError } from '../errors.ts';
import type { Delivery, Position } from '../transport.ts';
import { doneWithin } from './kafka-client.ts';
import { toTwiceproofError } from './kafka-errors.ts';
import { bufferDelivery, isRevoked, positionLost, type LaneState } from './lanes.ts';

/** A lane is fetched for while it buffers less than this, so it holds this and one fetch at most. */
const bufferBytesLow = 1024 * 1024;
const fetchBytesPerLane = 1024 * 1024;
const fetchBytes = 8 * 1024 * 1024;
/** How long a broker may wait for a first record. It delays nobody: it answers as soon as there is one. */
const longWaitMs = 500;
/** While another lane of that broker is left out because its buffer is full, since it soon wants to be in again. */
const shortWaitMs = 100;
const answerWithinMs = 10_000;
const retryMs = 250;

const offsetOutOfRange = 1;
const controlBatch = 0x20;

type FetchResponse = Awaited<ReturnType<Consumer['fetch']>>;

export interface FetcherHooks {
  lanes(): readonly FetchedLane[];
  /** Records have been buffered. */
  arrived(): void;
  /** Something passes, as far as we know. */
  onTrouble(error: TwiceproofError): void;
  /** It cannot go on. */
  failed(error: unknown): void;
  /** The assignment does not fit the topic any more: it was re-created, or has more partitions. */
  onTopicChanged(topic: string): void;
}

export interface FetchedLane extends LaneState {
  topicId: string;
  /** How many partitions the topic had when this lane was assigned. */
  topicPartitions: number;
}

/**
 * Keeps the lanes' buffers filled: one request at a time to each broker that leads some of them.
 * `client` never joins a group and does not retry, so a request is one request. It has connections of its own
 * here, because a broker answers the requests of one connection in turn, and a commit behind a
 * fetch that waits for records would wait with it.
 */
export function createFetcher(client: Consumer, connections: ConnectionPool, hooks: FetcherHooks) {
  const stopped = new AbortController();
  const busy = new Set<number>();

  let planning = false;
  let planAgain = false;

  /** Begins a fetch from every broker that has none under way and leads a lane that wants records. */
  function kick(): void {
    planAgain = true;
    if (planning) return;
    planUntilDone().catch(hooks.failed);
  }

  async function planUntilDone(): Promise<void> {
    planning = true;
    while (planAgain && !stopped.signal.aborted) {
      planAgain = false;
      await plan().catch((error: unknown) => {
        planAgain = true;
        return pauseAfter(error, 'asking which broker leads');
      });
    }
    planning = false;
  }

  async function plan(): Promise<void> {
    const lanes = hooks.lanes();
    if (lanes.length === 0) return;
    const leaderOf = await leaders(client, lanes, hooks);
    if (stopped.signal.aborted) return;
    for (const [node, led] of Map.groupBy(lanes, leaderOf)) {
      const wanted = led.filter((lane) => !lane.paused && !isRevoked(lane) && lane.bufferBytes < bufferBytesLow);
      if (wanted.length === 0 || busy.has(node)) continue;
      const waitMs = led.some((lane) => !lane.paused && !wanted.includes(lane)) ? shortWaitMs : longWaitMs;
      busy.add(node);
      fetchFrom(node, wanted, waitMs).catch(hooks.failed);
    }
  }

  async function fetchFrom(node: number, wanted: readonly FetchedLane[], waitMs: number): Promise<void> {
    const from = new Map(wanted.map((lane) => [lane, lane.next]));
    try {
      takeIn(await fetchOnce(client, connections, node, from, waitMs), from, hooks);
    } catch (error) {
      const partial = usableOf(error);
      if (partial) takeIn(partial, from, hooks);
      // Most likely a leader has moved: what the client knows of the cluster is not trusted any more.
      client.clearMetadata();
      await pauseAfter(error, `fetching from broker ${node}`);
    }
    busy.delete(node);
    kick();
  }

  async function pauseAfter(error: unknown, doing: string): Promise<void> {
    if (stopped.signal.aborted) return;
    hooks.onTrouble(toTwiceproofError(error, doing));
    await delay(retryMs, undefined, { signal: stopped.signal }).catch(() => {});
  }

  return { kick, stop: () => stopped.abort() };
}

export type Fetcher = ReturnType<typeof createFetcher>;

/** Which broker leads each lane. Asked from the client's cache, which it refreshes when it is old. */
async function leaders(
  client: Consumer,
  lanes: readonly FetchedLane[],
  hooks: FetcherHooks,
): Promise<(lane: FetchedLane) => number> {
  const topics = [...new Set(lanes.map(({ lane }) => lane.topic))];
  // Each retry asks another broker.
  const metadata = await doneWithin(answerWithinMs, 'metadata', client.metadata({ topics, retries: 3 }));
  for (const { lane, topicId, topicPartitions } of lanes) {
    const topic = metadata.topics.get(lane.topic);
    if (topic?.id !== topicId || topic.partitionsCount !== topicPartitions) hooks.onTopicChanged(lane.topic);
  }
  return ({ lane }) => metadata.topics.get(lane.topic)?.partitions[lane.partition]?.leader ?? -1;
}

function fetchOnce(
  client: Consumer,
  connectionPool: ConnectionPool,
  node: number,
  from: ReadonlyMap<FetchedLane, bigint>,
  maxWaitTime: number,
): Promise<FetchResponse> {
  const topics = [...Map.groupBy(from, ([lane]) => lane.topicId)].map(([topicId, lanes]) => ({
    topicId,
    partitions: lanes.map(([{ lane }, fetchOffset]) => ({
      partition: lane.partition,
      fetchOffset,
      // Without epochs: the high watermark alone says what all in-sync replicas have.
      currentLeaderEpoch: -1,
      lastFetchedEpoch: -1,
      partitionMaxBytes: fetchBytesPerLane,
    })),
  }));
  const answer = client.fetch({ node, topics, connectionPool, maxWaitTime, minBytes: 1, maxBytes: fetchBytes });
  return doneWithin(answerWithinMs, 'fetching', answer);
}

/**
 * What came beside an error. The client leaves out records of transactions that were rolled back only where there is no
 * error, so lanes that have some are left to the next answer.
 */
export function usableOf(error: unknown): FetchResponse | undefined {
  const response = (error as { response?: FetchResponse } | undefined)?.response;
  if (!Array.isArray(response?.responses)) return undefined;
  const responses = response.responses.map(({ partitions, ...topic }) => {
    return { ...topic, partitions: partitions.filter((part) => (part.abortedTransactions?.length ?? 0) === 0) };
  });
  return { ...response, responses };
}

/** An answer may hold records of some lanes and errors of others. */
function takeIn(response: FetchResponse, from: ReadonlyMap<FetchedLane, bigint>, hooks: FetcherHooks): void {
  let arrived = false;
  for (const { topicId, partitions } of response.responses) {
    for (const part of partitions) {
      const lane = [...from.keys()].find((l) => l.topicId === topicId && l.lane.partition === part.partitionIndex);
      // Taken away meanwhile: what came is of no use.
      if (!lane || isRevoked(lane)) continue;
      if (part.errorCode === 0 && bufferRecords(lane, part.records ?? [])) arrived = true;
      // A lane whose leader moves may be asked for twice at once; only the answer to where it stands counts.
      if (part.errorCode !== offsetOutOfRange || lane.next !== from.get(lane)) continue;
      // Retention has overtaken us, or the log was cut: everything that is still there is read. Never the latest.
      hooks.onTrouble(positionLost(lane.lane, lane.next));
      lane.next = part.logStartOffset < 0n ? 0n : part.logStartOffset;
    }
  }
  if (arrived) hooks.arrived();
}

type RecordsBatches = NonNullable<FetchResponse['responses'][number]['partitions'][number]['records']>;

/** A broker answers in whole batches: what lies before the position asked for is left out. */
function bufferRecords(state: FetchedLane, batches: RecordsBatches): boolean {
  let buffered = false;
  for (const { firstOffset, lastOffsetDelta, attributes, records } of batches) {
    for (const record of attributes & controlBatch ? [] : records) {
      const offset = firstOffset + BigInt(record.offsetDelta);
      if (offset < state.next) continue;
      bufferDelivery(state, toDelivery(state, offset, record));
      buffered = true;
    }
    // Also past what is no record (transaction markers, compaction), or it would be fetched for ever.
    const after = firstOffset + BigInt(lastOffsetDelta) + 1n;
    if (after > state.next) state.next = after;
  }
  return buffered;
}

const nothing = Buffer.alloc(0);

function toDelivery(
  { lane }: FetchedLane,
  offset: bigint,
  { key, value, headers }: RecordsBatches[number]['records'][number],
): Delivery & { position: Position } {
  return {
    lane,
    key: key ?? undefined,
    value: value ?? nothing,
    headers: headers.map(([name, bytes]) => [name?.toString() ?? '', bytes ?? nothing] as const),
    position: { ...lane, offset },
  };
}
