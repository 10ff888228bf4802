/** What stands in a row of `held`, and the types that go with it. */
import { createHash } from 'node:crypto';
import type { MessageId } from '../message.ts';
import type { Delivery } from '../transport.ts';

/**
 * - `parked`: its handler failed for good, and later messages of its key wait behind it; or it is one of these
 * - `dead`: its handler failed for good, and nobody waits for it
 * - `late`, `future`, `altered`: see `Verdict`
 * - `unreadable`: no message could be made of its bytes
 */
export type HeldKind = (typeof heldKinds)[number];

export const heldKinds = ['parked', 'dead', 'late', 'future', 'altered', 'unreadable'] as const;

export interface ToHold {
  kind: HeldKind;
  delivery: Delivery;
  topicId: string;
  /** Not of what is unreadable. */
  aggregateId?: string | undefined;
  id?: MessageId | undefined;
  /** `contentHash`, or `recordHash` of what is unreadable. */
  content: bigint;
  reason: string;
}

/** `redrive`: this one alone; `release`: its key, from its first one on until none is left. */
export type Wish = 'redrive' | 'release';

export interface HeldRow extends ToHold {
  seq: bigint;
  consumer: string;
  heldAt: Date;
  asked: Wish | undefined;
}

/** A held message without its record: of these many fit into a program. */
export interface HeldEntry extends Omit<HeldRow, 'delivery' | 'content'> {
  topic: string;
  partition: number;
  offset: bigint | undefined;
}

export const entryColumns = `seq::text AS seq, consumer, kind, aggregate_id, msg_id, topic, topic_id, partition,
  record_offset::text AS record_offset, reason, held_at, asked`;
export const rowColumns = `${entryColumns}, content_hash::text AS content, record_key, record_headers, record_value`;

export function toEntry(row: Record<string, unknown>): HeldEntry {
  const offset = row['record_offset'] as string | null;
  return {
    seq: BigInt(String(row['seq'])),
    consumer: String(row['consumer']),
    kind: row['kind'] as HeldKind,
    topic: String(row['topic']),
    topicId: String(row['topic_id']),
    partition: Number(row['partition']),
    offset: offset === null ? undefined : BigInt(offset),
    aggregateId: (row['aggregate_id'] as string | null) ?? undefined,
    id: (row['msg_id'] as string | null) ?? undefined,
    reason: String(row['reason']),
    heldAt: row['held_at'] as Date,
    asked: (row['asked'] as Wish | null) ?? undefined,
  };
}

export function toHeld(row: Record<string, unknown>): HeldRow {
  const { topic, partition, offset, ...entry } = toEntry(row);
  const lane = { topic, partition };
  const headers = row['record_headers'] as [string, string][];
  const delivery: Delivery = {
    lane,
    key: (row['record_key'] as Buffer | null) ?? undefined,
    value: row['record_value'] as Buffer,
    headers: headers.map(([name, value]) => [name, Buffer.from(value, 'base64')] as const),
    ...(offset !== undefined && { position: { ...lane, offset } }),
  };
  return { ...entry, delivery, content: BigInt(String(row['content'])) };
}

/** Over all bytes of a record, for what cannot be read any further. */
export function recordHash({ key, headers, value }: Delivery): bigint {
  const hash = createHash('sha256');
  const parts = [key ?? Buffer.alloc(0), value, ...headers.flatMap(([name, bytes]) => [Buffer.from(name), bytes])];
  for (const part of parts) hash.update(`${part.length} `).update(part);
  return hash.digest().readBigInt64BE();
}

/**
 * The server's texts have no NUL. A key with one is told apart by its bytes, in `record_key`; here it only groups. What
 * stands for it takes one byte too, or a long key of many would not fit into its index.
 */
export function withoutNul(text: string): string {
  return text.replaceAll('\0', '\x1A');
}

const longestReason = 2_000;

export function asReason(text: string): string {
  return text.replaceAll('\0', '\uFFFD').slice(0, longestReason).toWellFormed();
}

/** Names and values may be any bytes. */
export function headersAsJson({ headers }: Delivery): string {
  return JSON.stringify(headers.map(([name, value]) => [withoutNul(name), Buffer.from(value).toString('base64')]));
}
