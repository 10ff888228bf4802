import type { Message, MessageId } from './message.ts';
import type { SourcedMessage } from './source.ts';
import type { Delivery, OutgoingRecord } from './transport.ts';
import { timeOfUuidv7 } from './uuid.ts';

/**
 * A message as it travels: CloudEvents 1.0 in the binary mode of its Kafka binding. The record's key is the aggregate's
 * id, its value the payload as it was stored, and all else is headers. Headers of the message itself, `traceparent`
 * among them, go along unchanged.
 */
export function toRecord(message: SourcedMessage, source: string): OutgoingRecord {
  // Somebody has written the row by hand: an array or a text would become headers with numbers for names.
  if (message.headers && Object.getPrototypeOf(message.headers) !== Object.prototype) {
    throw new TypeError('the headers are not an object');
  }
  return {
    topic: message.topic,
    key: message.aggregateId,
    value: message.payload,
    headers: {
      ...message.headers,
      ce_specversion: '1.0',
      ce_id: message.id,
      ce_type: message.type,
      ce_source: source,
      ce_subject: message.aggregateId,
      ce_time: textOf(message.createdAt),
    },
  };
}

let last = { ms: NaN, text: '' };

/** Messages of a batch are often of one moment. */
function textOf(time: Date): string {
  const ms = time.getTime();
  if (ms !== last.ms) last = { ms, text: time.toISOString() };
  return last.text;
}

export interface ReceivedMessage extends Message {
  id: MessageId;
  /** Where it comes from, if it says so. */
  source: string | undefined;
  createdAt: Date | undefined;
}

/**
 * Reads a message back: from the headers, or where the sender cannot set any, from a JSON value with the fields
 * `msg_id`, `event_type` and `payload` (or those of a CloudEvent: `id`, `type` and `data`). Answers why it cannot be
 * read otherwise; a message without an id is not run on a guess.
 */
export function fromDelivery(delivery: Delivery): ReceivedMessage | { problem: string } {
  const { lane, key, value } = delivery;
  if (!key) return { problem: 'the record has no key' };
  if (key.byteLength > maxKeyBytes) return { problem: `its key has more than ${maxKeyBytes} bytes` };
  const aggregateId = text(key);
  if (aggregateId === undefined) return { problem: 'the key is not UTF-8' };
  const headers = headersOf(delivery);
  if ('problem' in headers) return headers;
  const { ce_id, ce_type, ce_source, ce_time } = headers.attributes;
  const fields = ce_id === undefined ? fieldsOf(value) : undefined;
  const id = ce_id ?? asText(fields?.['msg_id'] ?? fields?.['id']);
  const type = ce_type ?? asText(fields?.['event_type'] ?? fields?.['type']);
  if (id === undefined || timeOfUuidv7(id) === undefined) return { problem: 'its id is missing, or is not a UUIDv7' };
  if (!type) return { problem: 'its type is missing' };
  const payload = fields ? payloadOf(fields['payload'] ?? fields['data']) : value;
  if (!payload) return { problem: 'its payload is missing, or is nested too deeply' };
  const time = new Date(ce_time ?? asText(fields?.['time']) ?? Number.NaN);
  return {
    topic: lane.topic,
    aggregateId,
    id: id.toLowerCase(),
    type,
    payload,
    headers: headers.others ? Object.fromEntries(headers.others) : {},
    source: ce_source ?? asText(fields?.['source']),
    createdAt: Number.isNaN(time.getTime()) ? undefined : time,
  };
}

/** Whoever keeps messages aside looks for them by their key, in an index that takes no long ones. */
const maxKeyBytes = 2_000;

/** A byte order mark is a part of the text: without it two keys could become one. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function text(bytes: Uint8Array): string | undefined {
  try {
    return utf8.decode(bytes);
  } catch {
    return undefined;
  }
}

function asText(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

interface Headers {
  attributes: Record<'ce_id' | 'ce_type' | 'ce_source' | 'ce_time', string | undefined>;
  /** All that are not of CloudEvents; in a Map, since the names are a sender's. */
  others: Map<string, string> | undefined;
}

/** Of a name that comes twice the first counts; but two ids are no id. */
function headersOf({ headers }: Delivery): Headers | { problem: string } {
  const attributes = { ce_id: undefined, ce_type: undefined, ce_source: undefined, ce_time: undefined };
  const found: Headers = { attributes, others: undefined };
  for (const [name, bytes] of headers) {
    const value = text(bytes);
    if (!name.startsWith('ce_')) {
      if (value !== undefined) keepFirst((found.others ??= new Map<string, string>()), name, value);
      continue;
    }
    if (name === 'ce_id' && found.attributes.ce_id !== undefined) return { problem: 'it has two ids' };
    if (value === undefined) return { problem: `header ${name} is not UTF-8` };
    if (name in attributes) found.attributes[name as keyof typeof attributes] ??= value;
  }
  return found;
}

function keepFirst(values: Map<string, string>, name: string, value: string): void {
  if (!values.has(name)) values.set(name, value);
}

/** A text is the payload as it is; anything else is rendered as JSON again. */
function payloadOf(field: unknown): Uint8Array | undefined {
  try {
    return field === undefined ? undefined : Buffer.from(typeof field === 'string' ? field : JSON.stringify(field));
  } catch {
    // Rendering can run out of stack where parsing did not.
    return undefined;
  }
}

function fieldsOf(value: Uint8Array): Record<string, unknown> | undefined {
  try {
    const parsed = JSON.parse(text(value) ?? '') as unknown;
    return typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
