/** How messages come to be held, and which keys have to wait. */
import type { Tx } from '../tx.ts';
import { asReason, headersAsJson, rowColumns, toHeld, withoutNul, type HeldRow, type ToHold } from './held-row.ts';

export interface Holding {
  /** Answers those that are new here: not what is held already, nor what was late and has been settled. */
  hold(tx: Tx, consumer: string, messages: readonly ToHold[]): Promise<HeldRow[]>;
  /** Of these keys those that wait for a person. Waits for whoever works one off just now. */
  blockedKeys(tx: Tx, consumer: string, keys: readonly string[]): Promise<Set<string>>;
}

/** Their inbox row says that they have come, so only this says that they have not run. */
const failedKinds: ReadonlySet<ToHold['kind']> = new Set(['parked', 'dead']);

/** `schema`: ready to stand in SQL. */
export function holding(schema: string): Holding {
  const table = `${schema}.held`;

  async function hold(tx: Tx, consumer: string, messages: readonly ToHold[]): Promise<HeldRow[]> {
    if (messages.length === 0) return [];
    const of = <T>(pick: (each: ToHold) => T): T[] => messages.map(pick);
    // One of a time to come was put aside unseen, and comes again when its time has come: what is known of it now counts.
    const failed = messages.filter(({ kind, id }) => id !== undefined && failedKinds.has(kind));
    if (failed.length > 0) {
      await tx.query(
        `DELETE FROM ${table} USING unnest($2::uuid[], $3::bigint[]) AS failed (id, content)
         WHERE consumer = $1 AND msg_id = id AND content_hash = content AND kind = 'future'`,
        [consumer, failed.map(({ id }) => id), failed.map(({ content }) => String(content))],
      );
    }
    const { rows } = await tx.query(
      `INSERT INTO ${table} (consumer, kind, blocks_key, aggregate_id, msg_id, content_hash, topic, topic_id, partition,
         record_offset, record_key, record_headers, record_value, reason)
       SELECT $1, kind, kind = 'parked', aggregate_id, msg_id, content, topic, topic_id, partition, record_offset,
         record_key, record_headers, record_value, reason
       FROM unnest($2::text[], $3::text[], $4::uuid[], $5::bigint[], $6::text[], $7::text[], $8::int[], $9::bigint[],
         $10::bytea[], $11::json[], $12::bytea[], $13::text[]) WITH ORDINALITY AS m (kind, aggregate_id, msg_id, content,
         topic, topic_id, partition, record_offset, record_key, record_headers, record_value, reason, n)
       WHERE kind NOT IN ('late', 'altered') OR NOT EXISTS (
         SELECT FROM ${schema}.held_settled s WHERE s.msg_id = m.msg_id AND s.consumer = $1 AND s.content_hash = m.content)
       ORDER BY n ON CONFLICT DO NOTHING
       RETURNING ${rowColumns}`,
      [
        consumer,
        of(({ kind }) => kind),
        of(({ aggregateId }) => (aggregateId === undefined ? null : withoutNul(aggregateId))),
        of(({ id }) => id ?? null),
        of(({ content }) => String(content)),
        of(({ delivery }) => delivery.lane.topic),
        of(({ topicId }) => topicId),
        of(({ delivery }) => delivery.lane.partition),
        of(({ delivery }) => delivery.position?.offset.toString() ?? null),
        of(({ delivery }) => (delivery.key ? Buffer.from(delivery.key) : null)),
        of(({ delivery }) => headersAsJson(delivery)),
        of(({ delivery }) => Buffer.from(delivery.value)),
        of(({ reason }) => asReason(reason)),
      ],
    );
    return rows.map(toHeld);
  }

  async function blockedKeys(tx: Tx, consumer: string, keys: readonly string[]): Promise<Set<string>> {
    if (keys.length === 0) return new Set();
    // In the order of the keys, as `lockHeld` has it.
    const { rows } = await tx.query(
      `SELECT key FROM (SELECT key FROM unnest($2::text[]) AS key ORDER BY key COLLATE "C") AS keys CROSS JOIN LATERAL (
         SELECT FROM ${table} WHERE consumer = $1 AND aggregate_id = key AND blocks_key ORDER BY seq LIMIT 1 FOR SHARE
       ) AS first`,
      [consumer, keys.map(withoutNul)],
    );
    const found = new Set(rows.map((row) => String(row['key'])));
    return new Set(keys.filter((key) => found.has(withoutNul(key))));
  }

  return { hold, blockedKeys };
}
