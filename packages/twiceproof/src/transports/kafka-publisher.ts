import { Producer, ProduceAcks, type MessageToProduce, type ProducerOptions } from '@platformatic/kafka';
import { TwiceproofError } from '../errors.ts';
import type { OutgoingRecord, Publisher, PublishOutcome } from '../transport.ts';
import { discard, doneWithin, type ClientFactory } from './kafka-client.ts';
import { toTwiceproofError } from './kafka-errors.ts';
import { Carried, sendEncoded, type EncodedMessage } from './kafka-batch.ts';
import { readResults, type LaneResult } from './kafka-results.ts';
import { partitionFor } from './partitioner.ts';
import { encodeRecord, keyId, tooLarge, type EncodedRecord } from './record.ts';

/** A batch of one partition is kept below this, or below `maxRecordBytes` if that is less; a larger record goes alone. */
const maxChunkBytes = 1_048_588;
/** Calls that overlap need a producer each; few are kept for the next ones. */
const maxIdleProducers = 4;
const closeWaitMs = 5000;

export interface PublisherOptions {
  publishDeadlineMs: number;
  maxRecordBytes: number;
}

interface Item {
  /** Among the records of the call. */
  index: number;
  record: EncodedRecord;
}

/** What is still to be sent to one partition, in order. */
interface PartitionQueue {
  topic: string;
  partition: number;
  pending: Item[];
  /** Halved while a record that the broker will not take is being searched for. */
  maxCount: number;
}

/**
 * One call, one producer, rounds of one `send()` each. A round holds the next chunk of every
 * partition, so the client makes one request for each broker; the next round begins when all of
 * them have answered. Nothing else ever runs on that producer meanwhile: its sequence numbers are
 * shared between sends, a failing send resets them, and another send that is waiting for metadata
 * at that moment would go out as (old producer id, sequence 0), which the broker takes for a
 * repetition of the first batch and acknowledges without writing it.
 *
 * A producer that failed for other reasons than a record's own is not used again, and one that is
 * stuck is left to itself at the deadline. What it still had on the wire may land later: a topic
 * then reads r1 r2 r1', and first appearances are in order all the same.
 */
export function createPublisher(clients: ClientFactory, options: PublisherOptions): Publisher {
  const idle: Producer[] = [];
  const busy = new Map<Producer, Promise<unknown>>();
  /** By topic: chunks above this size were found too large for it. Kept until this publisher is closed. */
  const learnedBytes = new Map<string, number>();
  let closed = false;

  async function publish(records: readonly OutgoingRecord[]): Promise<PublishOutcome[]> {
    if (closed) throw new TwiceproofError('TP_CLOSED', 'publish on a closed publisher');
    if (records.length === 0) return [];
    const producer = idle.pop() ?? createProducer(clients);
    const attempt = publishWith(producer, records, options, learnedBytes);
    busy.set(producer, attempt);
    try {
      const { outcomes, healthy } = await attempt;
      if (healthy && !closed && idle.length < maxIdleProducers) idle.push(producer);
      else discard(producer);
      return outcomes;
    } finally {
      busy.delete(producer);
    }
  }

  async function close(): Promise<void> {
    closed = true;
    idle.splice(0).forEach(discard);
    await doneWithin(closeWaitMs, 'publishing before close', Promise.allSettled(busy.values())).catch(() => {});
    [...busy.keys()].forEach(discard);
  }

  return { publish, close };
}

function createProducer(clients: ClientFactory): Producer {
  const settings: ProducerOptions<Buffer, Buffer, Buffer, Buffer> = {
    ...clients.base(),
    idempotent: true,
    // Not 0 or 1: the client would take them for 2^53-1.
    retries: 10,
    timeout: 10_000,
    requestTimeout: 12_000,
  };
  const producer = new Producer(settings);
  // An 'error' event without a listener ends the process; every failure also comes back from its call.
  producer.on('error', () => {});
  sendEncoded(producer);
  return producer;
}

async function publishWith(
  producer: Producer,
  records: readonly OutgoingRecord[],
  options: PublisherOptions,
  learnedBytes: Map<string, number>,
): Promise<{ outcomes: PublishOutcome[]; healthy: boolean }> {
  const deadline = performance.now() + options.publishDeadlineMs;
  const left = (): number => deadline - performance.now();
  const outcomes = Array.from<PublishOutcome>({ length: records.length });
  const items = encodeAll(records, options.maxRecordBytes, outcomes);
  // A third of the deadline, so that a broker that hangs leaves the caller time to try another.
  const metadataMs = options.publishDeadlineMs / 3;
  const { queues, healthy: reached } = await queueByPartition(producer, records, items, outcomes, metadataMs);
  let healthy = reached;
  for (let open = queues; open.length > 0; open = open.filter((queue) => queue.pending.length > 0)) {
    const chunks = open.map((queue) => ({ queue, chunk: nextChunk(queue, learnedBytes, options) }));
    const results = await send(producer, chunks, left());
    chunks.forEach(({ queue, chunk }, i) => apply(queue, chunk, results[i]!, outcomes, learnedBytes));
    healthy &&= !results.some(({ result }) => result === 'unknown');
  }
  return { outcomes, healthy };
}

/** Encodes what can be encoded; what cannot is rejected, and the rest of its key withheld. */
function encodeAll(records: readonly OutgoingRecord[], maxRecordBytes: number, outcomes: PublishOutcome[]): Item[] {
  const blocked = new Set<string>();
  const items: Item[] = [];
  records.forEach((outgoing, index) => {
    const isBlocked = blocked.size > 0 && blocked.has(keyId(outgoing));
    const record = isBlocked ? undefined : encodeRecord(outgoing, maxRecordBytes);
    if (record === undefined) {
      outcomes[index] = { outcome: 'withheld' };
    } else if (record instanceof TwiceproofError) {
      outcomes[index] = { outcome: 'rejected', error: record };
      blocked.add(keyId(outgoing));
    } else {
      items.push({ index, record });
    }
  });
  return items;
}

async function queueByPartition(
  producer: Producer,
  records: readonly OutgoingRecord[],
  items: readonly Item[],
  outcomes: PublishOutcome[],
  metadataMs: number,
): Promise<{ queues: PartitionQueue[]; healthy: boolean }> {
  const queues: PartitionQueue[] = [];
  let healthy = true;
  const byTopic = Map.groupBy(items, ({ index }) => records[index]!.topic);
  // One question for each topic, because one unknown topic fails the whole question.
  await Promise.all(
    [...byTopic].map(async ([topic, those]) => {
      try {
        const partitions = await partitionsOf(producer, topic, metadataMs);
        const byPartition = Map.groupBy(those, ({ record }) => partitionFor(record.key, partitions));
        for (const [partition, pending] of byPartition) queues.push({ topic, partition, pending, maxCount: Infinity });
      } catch (cause) {
        const error = toTwiceproofError(cause, `asking for topic ${topic}`);
        const outcome = isRefusal(error) ? 'refused' : 'unknown';
        healthy &&= outcome === 'refused';
        for (const { index } of those) outcomes[index] = { outcome, error };
      }
    }),
  );
  return { queues, healthy };
}

async function partitionsOf(producer: Producer, topic: string, waitMs: number): Promise<number> {
  const metadata = await doneWithin(waitMs, 'metadata', producer.metadata({ topics: [topic], retries: 2 }));
  return metadata.topics.get(topic)!.partitionsCount;
}

function isRefusal({ code }: TwiceproofError): boolean {
  return code === 'TP_TOPIC_UNKNOWN' || code === 'TP_NOT_AUTHORIZED';
}

/** The longest run that fits, because `max.message.bytes` limits the whole batch of a partition; one record at least. */
function nextChunk(queue: PartitionQueue, learnedBytes: Map<string, number>, options: PublisherOptions): Item[] {
  const limit = Math.min(maxChunkBytes, options.maxRecordBytes, learnedBytes.get(queue.topic) ?? Infinity);
  let bytes = 0;
  let count = 0;
  while (count < queue.pending.length && count < queue.maxCount) {
    bytes += queue.pending[count]!.record.bytes;
    if (count > 0 && bytes > limit) break;
    count += 1;
  }
  return queue.pending.slice(0, count);
}

async function send(
  producer: Producer,
  chunks: readonly { queue: PartitionQueue; chunk: Item[] }[],
  leftMs: number,
): Promise<LaneResult[]> {
  const messages = chunks.flatMap(({ queue: { topic, partition }, chunk }) =>
    chunk.map(({ record }): EncodedMessage => ({ topic, partition, value: new Carried(record) })),
  );
  const lanes = chunks.map(({ queue }) => queue);
  try {
    const sent = producer.send({
      messages: messages as unknown as MessageToProduce[],
      acks: ProduceAcks.ALL,
      autocreateTopics: false,
    });
    const { offsets = [] } = await doneWithin(leftMs, 'publishing', sent);
    return readResults(lanes, undefined, offsets);
  } catch (error) {
    return readResults(lanes, error, []);
  }
}

function apply(
  queue: PartitionQueue,
  chunk: readonly Item[],
  result: LaneResult,
  outcomes: PublishOutcome[],
  learnedBytes: Map<string, number>,
): void {
  if (result.result === 'acknowledged') {
    const { topic, partition } = queue;
    chunk.forEach(({ index }, i) => {
      outcomes[index] = { outcome: 'acknowledged', position: { topic, partition, offset: result.offset + BigInt(i) } };
    });
    queue.pending.splice(0, chunk.length);
  } else if (result.result === 'rejected') {
    narrow(queue, chunk, result.error, outcomes, learnedBytes);
  } else {
    const { result: outcome, error } = result;
    for (const { index } of chunk) outcomes[index] = { outcome, error };
    for (const { index } of queue.pending.slice(chunk.length)) outcomes[index] = { outcome: 'withheld' };
    queue.pending = [];
  }
}

/** The broker will not take this chunk: halve it until one record is left, which is the culprit. */
function narrow(
  queue: PartitionQueue,
  chunk: readonly Item[],
  error: TwiceproofError,
  outcomes: PublishOutcome[],
  learnedBytes: Map<string, number>,
): void {
  const bytes = chunk.reduce((sum, { record }) => sum + record.bytes, 0);
  const isTooLarge = error.code === 'TP_RECORD_TOO_LARGE';
  if (chunk.length > 1) {
    queue.maxCount = Math.ceil(chunk.length / 2);
    if (isTooLarge) learnedBytes.set(queue.topic, Math.ceil(bytes / 2));
    return;
  }
  const culprit = chunk[0]!;
  outcomes[culprit.index] = { outcome: 'rejected', error: isTooLarge ? tooLarge(bytes, 'the broker') : error };
  const isBlocked = ({ record }: Item): boolean => record.key.equals(culprit.record.key);
  const rest = queue.pending.slice(1);
  for (const { index } of rest.filter(isBlocked)) outcomes[index] = { outcome: 'withheld' };
  queue.pending = rest.filter((item) => !isBlocked(item));
  queue.maxCount = Infinity;
}
