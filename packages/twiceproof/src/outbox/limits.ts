import { TwiceproofError } from '../errors.ts';
import type { Message } from '../message.ts';

/**
 * Checked when a message is appended, where the caller can still roll back: in the relay it would be too late,
 * and the key would have to wait for a person.
 */
export interface MessageLimits {
  /**
   * Payload, key and headers together. Keep it below the topics' `max.message.bytes`, with room for the
   * headers that the relay adds. Defaults to 1,000,000; the brokers' default is 1,048,588.
   */
  messageBytes: number;
  /** Of the aggregate id, the type, and each header's name. Defaults to 255; 2,000 at most. */
  nameBytes: number;
  /** Defaults to 32. */
  headers: number;
}

/** A longer one could not be parked: an entry of an index has 2,700 bytes at most. */
export const longestName = 2_000;
const defaults: MessageLimits = { messageBytes: 1_000_000, nameBytes: 255, headers: 32 };
/** The relay's own: who could set them could forge where a message comes from. */
const reservedHeader = /^(ce_|twiceproof)/i;

export function checkMessage(message: Message, topics: ReadonlySet<string>, limits: Partial<MessageLimits> = {}): void {
  const { messageBytes, nameBytes, headers: maxHeaders } = { ...defaults, ...limits };
  const { topic, aggregateId, type, payload, headers = {} } = message;
  if (!topics.has(topic)) {
    throw new TwiceproofError('TP_TOPIC_NOT_CONFIGURED', `'${topic}' is not among the topics of this outbox`);
  }
  const invalid = (what: string): TwiceproofError => new TwiceproofError('TP_MESSAGE_INVALID', what);
  for (const [name, value] of Object.entries({ aggregateId, type })) {
    const problem = nameProblem(value, nameBytes);
    if (problem) throw invalid(`${name} ${problem}`);
  }
  if (!(payload instanceof Uint8Array)) throw invalid('payload is not bytes (encode it, for example by Buffer.from)');
  const entries = Object.entries(headers);
  if (entries.length > maxHeaders) throw invalid(`it has ${entries.length} headers, and ${maxHeaders} are allowed`);
  let bytes = payload.byteLength + Buffer.byteLength(aggregateId) + Buffer.byteLength(type);
  for (const [name, value] of entries) {
    const problem = nameProblem(name, nameBytes) ?? valueProblem(value);
    if (problem) throw invalid(`header '${name}' ${problem}`);
    if (reservedHeader.test(name)) throw invalid(`header '${name}' is reserved`);
    bytes += Buffer.byteLength(name) + Buffer.byteLength(value);
  }
  if (bytes > messageBytes) {
    throw new TwiceproofError('TP_MESSAGE_TOO_LARGE', `it has ${bytes} bytes, and ${messageBytes} are allowed`);
  }
}

function nameProblem(value: unknown, maxBytes: number): string | undefined {
  if (typeof value !== 'string' || value === '') return 'is not a text, or empty';
  if (Buffer.byteLength(value) > maxBytes) return `has more than ${maxBytes} bytes`;
  return valueProblem(value);
}

/** Postgres takes neither in a text, and would say so in the middle of the transaction. */
function valueProblem(value: unknown): string | undefined {
  if (typeof value !== 'string') return 'is not a text';
  if (value.includes('\0')) return 'holds a NUL character';
  return value.isWellFormed() ? undefined : 'holds half of a surrogate pair';
}
