import { TwiceproofError } from '../errors.ts';
import type { OutgoingRecord } from '../transport.ts';
import { varintBytes, writeVarint } from './varint.ts';

/** A record as bytes. */
export interface EncodedRecord {
  key: Buffer;
  value: Buffer;
  /** Each as it stands on the wire, with its lengths. */
  headers: Buffer[];
  /** At most this many bytes on the wire, as the only record of its batch. */
  bytes: number;
}

/** What a Kafka batch and a record in it cost besides their contents, with every varint at its longest. */
const batchOverhead = 61;
const recordOverhead = 1 + 10 + 5 + 5 + 5 + 5 + 5;

/** Encodes a record, or says why that record can never be published. */
export function encodeRecord(record: OutgoingRecord, maxRecordBytes: number): EncodedRecord | TwiceproofError {
  if (!record.key.isWellFormed()) return invalid('key', 'has a lone surrogate, two such keys would become one');
  if (!(record.value instanceof Uint8Array)) return invalid('value', 'is not a Uint8Array');
  const key = Buffer.from(record.key);
  const value = Buffer.isBuffer(record.value) ? record.value : viewOf(record.value);
  const headers: Buffer[] = [];
  let bytes = batchOverhead + recordOverhead + key.length + value.length;
  const texts = record.headers ?? {};
  for (const name of Object.keys(texts)) {
    const header = encodeHeader(name, texts[name]);
    if (!header) return invalid(`headers[${JSON.stringify(name)}]`, 'is not well-formed text');
    headers.push(header);
    bytes += header.length;
  }
  if (bytes > maxRecordBytes) return tooLarge(bytes, maxRecordBytes);
  return { key, value, headers, bytes };
}

function viewOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** By name: as it was encoded last. Few names are used, and most have the same value in many records. */
const lastHeaders = new Map<string, { text: string; bytes: Buffer }>();
const maxLastHeaders = 100;

function encodeHeader(name: string, text: unknown): Buffer | undefined {
  const last = lastHeaders.get(name);
  if (last && last.text === text) return last.bytes;
  if (typeof text !== 'string' || !text.isWellFormed() || !(last || name.isWellFormed())) return undefined;
  const bytes = headerBytes(name, text);
  if (last) Object.assign(last, { text, bytes });
  else if (lastHeaders.size < maxLastHeaders) lastHeaders.set(name, { text, bytes });
  return bytes;
}

function headerBytes(name: string, text: string): Buffer {
  const nameLength = Buffer.byteLength(name);
  const textLength = Buffer.byteLength(text);
  const bytes = Buffer.allocUnsafe(varintBytes(nameLength) + nameLength + varintBytes(textLength) + textLength);
  const at = writeVarint(bytes, 0, nameLength);
  bytes.write(name, at);
  bytes.write(text, writeVarint(bytes, at + nameLength, textLength));
  return bytes;
}

export function tooLarge(bytes: number, limit: number | 'the broker'): TwiceproofError {
  const allowed = limit === 'the broker' ? 'the broker allows' : `the ${limit} allowed`;
  return new TwiceproofError('TP_RECORD_TOO_LARGE', `the record has ${bytes} bytes, more than ${allowed}`);
}

function invalid(field: string, why: string): TwiceproofError {
  return new TwiceproofError('TP_RECORD_INVALID', `${field} ${why}`);
}

/** Names a key across topics; a topic's name has no space in it. */
export function keyId(record: OutgoingRecord): string {
  return `${record.topic} ${record.key}`;
}
