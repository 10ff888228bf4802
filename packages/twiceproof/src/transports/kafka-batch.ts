/**
 * Records as the brokers take them, written into one buffer for each partition. The client would make some thirty small
 * buffers of each record and copy all of them twice, which was most of its work (decision 6).
 */
import { crc32c, kGetApi, Writer, type Producer } from '@platformatic/kafka';
import type { EncodedRecord } from './record.ts';
import { varintBytes, writeVarint } from './varint.ts';

/** What the client is given to send. It carries a value along unseen, but counts the messages: so each is one record. */
export interface EncodedMessage {
  topic: string;
  partition: number;
  value: Carried;
}

/**
 * A record on its way through the client. If the client ever encoded it by itself, it would find no length, take the value
 * for an empty one, and the broker would acknowledge that.
 */
export class Carried {
  readonly record: EncodedRecord;

  constructor(record: EncodedRecord) {
    this.record = record;
  }

  get length(): never {
    throw new Error('the client encodes records by itself: this version of it is not known here');
  }
}

/** As much of the client's own options as a batch bears. */
interface BatchOptions {
  producerId: bigint;
  producerEpoch: number;
  /** Of the first record, by `topic:partition`. */
  sequences: { getWithDefault(key: string, otherwise: number): number };
}

type Send = (apiKey: number, version: number, createPayload: () => Writer, ...rest: unknown[]) => void;
type Api = (connection: { send: Send }, ...args: unknown[]) => void;
type GetApi = (name: string, callback: (error: Error | null, api?: Api) => void) => void;

/** From now on this producer sends `EncodedMessage`s, and nothing else. Ids, sequences, leaders and retries stay its own. */
export function sendEncoded(producer: Producer): void {
  const client = producer as unknown as { [kGetApi]: GetApi };
  const getApi = client[kGetApi].bind(client);
  client[kGetApi] = (name, callback) => {
    getApi(name, (error, api) => callback(error, api && name === 'Produce' ? withOwnBatches(api) : api));
  };
}

/** The client's request of whatever version the broker knows, with another payload. */
function withOwnBatches(api: Api): Api {
  return (connection, ...args) => {
    const [acks, timeoutMs, messages, options] = args as [number, number, EncodedMessage[], BatchOptions];
    const send: Send = (apiKey, version, _, ...rest) => {
      const payload = (): Writer => produceRequest(version, { acks, timeoutMs, messages, options });
      connection.send(apiKey, version, payload, ...rest);
    };
    api({ send }, ...args);
  };
}

interface Produce {
  acks: number;
  timeoutMs: number;
  messages: readonly EncodedMessage[];
  options: BatchOptions;
}

/** From version 9 on lengths are varints; before version 3 batches were of another form, and after 12 topics have ids. */
export function produceRequest(
  version: number,
  { acks, timeoutMs, messages, options }: Produce,
  nowMs = Date.now(),
): Writer {
  if (version < 3 || version > 12) throw new RangeError(`produce requests of version ${version} are not known here`);
  const isCompact = version >= 9;
  const byTopic = [...Map.groupBy(messages, ({ topic }) => topic)];
  const request = Writer.create()
    .appendString(null, isCompact) // No transaction.
    .appendInt16(acks)
    .appendInt32(timeoutMs)
    .appendArray(
      byTopic,
      (topics, [topic, those]) => {
        const byPartition = [...Map.groupBy(those, ({ partition }) => partition)];
        topics.appendString(topic, isCompact).appendArray(
          byPartition,
          (partitions, [partition, batched]) => {
            // The client goes on counting; brokers begin at 0 again.
            const sequence = options.sequences.getWithDefault(`${topic}:${partition}`, 0) % 2 ** 31;
            const records = batched.map(({ value }) => value.record);
            partitions
              .appendInt32(partition)
              .appendBytes(createBatch(records, { ...options, sequence }, nowMs), isCompact);
          },
          isCompact,
          isCompact,
        );
      },
      isCompact,
      isCompact,
    );
  return isCompact ? request.appendTaggedFields() : request;
}

interface Batch {
  producerId: bigint;
  producerEpoch: number;
  sequence: number;
}

const headBytes = 61;
const crcAt = 17;
const afterCrc = 21;

/** A batch in version 2 of the format, not compressed. Its records are all of this moment. */
function createBatch(
  records: readonly EncodedRecord[],
  { producerId, producerEpoch, sequence }: Batch,
  nowMs: number,
): Buffer {
  const space = records.reduce((sum, { bytes }) => sum + bytes, headBytes);
  const buffer = Buffer.allocUnsafe(space);
  let at = headBytes;
  records.forEach((record, n) => {
    at = writeRecord(buffer, at, record, n);
  });
  const batch = buffer.subarray(0, at);
  batch.writeBigInt64BE(0n, 0); // The offset is the broker's to give.
  batch.writeInt32BE(at - 12, 8);
  batch.writeInt32BE(0, 12);
  batch.writeInt8(2, 16);
  batch.writeInt16BE(0, afterCrc);
  batch.writeInt32BE(records.length - 1, 23);
  batch.writeBigInt64BE(BigInt(nowMs), 27);
  batch.writeBigInt64BE(BigInt(nowMs), 35);
  batch.writeBigInt64BE(producerId, 43);
  batch.writeInt16BE(producerEpoch, 51);
  batch.writeInt32BE(sequence, 53);
  batch.writeInt32BE(records.length, 57);
  batch.writeUInt32BE(crc32c(batch.subarray(afterCrc)), crcAt);
  return batch;
}

/** Answers where the next one begins. */
function writeRecord(to: Buffer, from: number, { key, value, headers }: EncodedRecord, n: number): number {
  const lengths = varintBytes(n) + varintBytes(key.length) + varintBytes(value.length) + varintBytes(headers.length);
  let length = 2 + lengths + key.length + value.length;
  for (const header of headers) length += header.length;
  let at = writeVarint(to, from, length);
  to[at] = 0; // Attributes.
  to[at + 1] = 0; // Milliseconds since the first record of the batch.
  at = writeVarint(to, at + 2, n);
  at = writeBytes(to, writeVarint(to, at, key.length), key);
  at = writeBytes(to, writeVarint(to, at, value.length), value);
  at = writeVarint(to, at, headers.length);
  for (const header of headers) at = writeBytes(to, at, header);
  return at;
}

function writeBytes(to: Buffer, at: number, bytes: Uint8Array): number {
  to.set(bytes, at);
  return at + bytes.length;
}
