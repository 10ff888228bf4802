/** A topic, whole: each partition from its earliest record to the end that it had when the reading began. */
import { hash, randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { Consumer } from '@platformatic/kafka';
import { Undecided } from './undecided.ts';

export interface TopicOptions {
  brokers: string;
  topics: readonly string[];
  /** The header that holds the message's id. */
  idHeader: string;
  signal: AbortSignal;
}

export interface Span {
  topic: string;
  partition: number;
  first: bigint;
  end: bigint;
}

export interface WholeTopic {
  spans: readonly Span[];
  /** Lines for COPY: topic, partition, offset, time, msg_id, key, type, digest of the value, digest of all of it. */
  lines(): AsyncGenerator<Buffer>;
  close(): Promise<void>;
}

const answerWithinMs = 10_000;
const retryMs = 250;
/** A partition of which nothing comes for so long cannot be read: its leader is gone, or its records are. */
const stalledMs = 30_000;
const fetchBytes = 4 * 1024 * 1024;
const readCommitted = 1;
const controlBatch = 0x20;

/** Asks where every partition begins and ends: what is appended later is not read. */
export async function openTopics({ brokers, topics, idHeader, signal }: TopicOptions): Promise<WholeTopic> {
  const consumer = new Consumer({
    clientId: 'recon',
    groupId: `recon-${randomUUID()}`, // It never joins one; the client wants a name.
    bootstrapBrokers: brokers.split(','),
    autocommit: false,
    timeout: answerWithinMs,
    connectTimeout: 3_000,
    retries: 10,
    retryDelay: retryMs,
  });
  consumer.on('error', () => {});
  consumer.topics.trackAll(...topics);
  const close = async (): Promise<void> => consumer.close(true);
  try {
    const spans = await spansOf(consumer, topics);
    return { spans, lines: () => lines(consumer, spans, idHeader, signal), close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function spansOf(consumer: Consumer, topics: readonly string[]): Promise<Span[]> {
  const asked = { topics: [...topics], isolationLevel: readCommitted };
  const { topics: known } = await consumer.metadata({ topics: [...topics] });
  const firsts = await consumer.listOffsets({ ...asked, timestamp: -2n });
  const ends = await consumer.listOffsets({ ...asked, timestamp: -1n });
  return topics.flatMap((topic) =>
    Array.from({ length: known.get(topic)?.partitionsCount ?? 0 }, (_, partition) => {
      const first = firsts.get(topic)?.[partition];
      const end = ends.get(topic)?.[partition];
      if (first === undefined || end === undefined) throw new Undecided(`${topic}/${partition} does not say its ends`);
      return { topic, partition, first, end };
    }),
  );
}

async function* lines(
  consumer: Consumer,
  spans: readonly Span[],
  idHeader: string,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  for (const span of spans) {
    let next = span.first;
    let lastProgress = performance.now();
    while (next < span.end) {
      signal.throwIfAborted();
      const batches = await fetchFrom(consumer, span, next).catch(async (error: unknown) => {
        if (performance.now() - lastProgress > stalledMs) throw notToTheEnd(span, next, error);
        consumer.clearMetadata(); // Most likely a leader has moved.
        await delay(retryMs);
        return [];
      });
      const text: string[] = [];
      for (const batch of batches) {
        if (!(batch.attributes & controlBatch)) appendLines(text, span, batch, next, idHeader);
        // Also past what is no record (markers, compaction), or it would be fetched for ever.
        const after = batch.firstOffset + BigInt(batch.lastOffsetDelta) + 1n;
        if (after > next) [next, lastProgress] = [after, performance.now()];
      }
      if (performance.now() - lastProgress > stalledMs) throw notToTheEnd(span, next, 'nothing comes');
      if (text.length > 0) yield Buffer.from(text.join(''));
    }
  }
}

function notToTheEnd({ topic, partition, end }: Span, next: bigint, why: unknown): Undecided {
  const reason = why instanceof Error ? why.message : String(why);
  return new Undecided(`${topic}/${partition} could not be read from ${next} to its end at ${end}: ${reason}`);
}

type Batches = NonNullable<
  Awaited<ReturnType<Consumer['fetch']>>['responses'][number]['partitions'][number]['records']
>;

async function fetchFrom(consumer: Consumer, { topic, partition }: Span, fetchOffset: bigint): Promise<Batches> {
  const { topics } = await consumer.metadata({ topics: [topic] });
  const { id: topicId, partitions } = topics.get(topic)!;
  const asked = {
    partition,
    fetchOffset,
    currentLeaderEpoch: -1,
    lastFetchedEpoch: -1,
    partitionMaxBytes: fetchBytes,
  };
  const { responses } = await consumer.fetch({
    node: partitions[partition]?.leader ?? -1,
    topics: [{ topicId, partitions: [asked] }],
    maxWaitTime: 500,
    minBytes: 1,
    maxBytes: fetchBytes,
    isolationLevel: readCommitted,
  });
  const answered = responses.find((one) => one.topicId === topicId)?.partitions;
  return answered?.find(({ partitionIndex }) => partitionIndex === partition)?.records ?? [];
}

/** A broker answers in whole batches: what lies before the position asked for, or behind the end, is left out. */
function appendLines(
  text: string[],
  { topic, partition, end }: Span,
  { firstOffset, firstTimestamp, records }: Batches[number],
  from: bigint,
  idHeader: string,
): void {
  for (const { offsetDelta, timestampDelta, key, value, headers } of records) {
    const offset = firstOffset + BigInt(offsetDelta);
    if (offset < from || offset >= end) continue;
    const parts = [key ?? none, gap, value ?? none];
    let id: Buffer | null | undefined;
    let type: Buffer | null | undefined;
    for (const [nameBytes, bytes] of headers) {
      const name = nameBytes?.toString() ?? '';
      if (name === idHeader) id ??= bytes;
      if (name === 'ce_type') type ??= bytes;
      parts.push(gap, nameBytes ?? none, gap, bytes ?? none);
    }
    text.push(
      `${topic}\t${partition}\t${offset}\t${firstTimestamp + timestampDelta}\t${field(id)}\t${field(key)}` +
        `\t${field(type)}\t${hash('md5', value ?? none)}\t${hash('md5', Buffer.concat(parts))}\n`,
    );
  }
}

const none = Buffer.alloc(0);
/** Between parts, so that no two records of other parts have the same bytes. */
const gap = Buffer.from([0]);

/** As a field of COPY's text format, which cannot hold NUL: that becomes U+FFFD, as what is not UTF-8 does. */
function field(bytes: Buffer | null | undefined): string {
  if (!bytes) return '\\N';
  const text = bytes.toString();
  return /[\\\t\n\r\0]/.test(text) ? text.replaceAll(/[\\\t\n\r\0]/g, (c) => escapes[c]!) : text;
}

const escapes: Record<string, string> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r', '\0': '\uFFFD' };
