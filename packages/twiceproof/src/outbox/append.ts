import { TwiceproofError } from '../errors.ts';
import type { Message, MessageId } from '../message.ts';
import { point } from '../points.ts';
import { quotedSchema } from '../schema-name.ts';
import { requireTransaction, type Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { checkMessage, type MessageLimits } from './limits.ts';

export interface OutboxOptions {
  /** The topics that messages may go to. A topic never comes from a request. */
  topics: readonly string[];
  /** Defaults to `twiceproof`. */
  schema?: string;
  limits?: Partial<MessageLimits>;
  /** Makes the ids; a parameter for tests. Defaults to UUIDv7 by this machine's clock. */
  newId?: () => MessageId;
}

export interface Outbox {
  /**
   * Writes the messages to the outbox in the caller's transaction, and answers their ids. They are
   * published after its COMMIT, or never.
   *
   * **Order.** Messages of one aggregate are published in the order of their ids, and an id is drawn here.
   * So the order is right for transactions that hold the aggregate's row lock (by UPDATE, or SELECT ... FOR
   * UPDATE) *before* they append. Two transactions that append first and lock later, or never, can be
   * published in either order.
   */
  append(tx: Tx, messages: readonly Message[]): Promise<MessageId[]>;
}

export function createOutbox(options: OutboxOptions): Outbox {
  const schema = quotedSchema(options.schema);
  const statement = appendStatement(schema);
  const topics = new Set(options.topics);
  const newId = options.newId ?? uuidv7;
  return {
    async append(tx, messages) {
      for (const message of messages) checkMessage(message, topics, options.limits);
      await requireTransaction(tx, schema);
      if (messages.length === 0) return [];
      const ids = messages.map(() => newId());
      const { rowCount } = await tx.query(statement, [
        messages.map(({ topic }) => topic),
        messages.map(({ aggregateId }) => aggregateId),
        ids,
        messages.map(({ type }) => type),
        messages.map(({ payload }) => toBuffer(payload)),
        messages.map(({ headers }) => (headers ? JSON.stringify(headers) : null)),
      ]);
      if (rowCount !== messages.length) {
        throw new TwiceproofError('TP_SCHEMA_VERSION', `${rowCount} of ${messages.length} messages were written`);
      }
      await point('outbox:appended');
      return ids;
    },
  };
}

/** The shard comes from the hash of the aggregate, and not from Kafka's: shards and partitions must not go together. */
function appendStatement(schema: string): string {
  return `INSERT INTO ${schema}.outbox (shard, topic, aggregate_id, msg_id, event_type, payload, headers)
    SELECT (hashtextextended(aggregate_id COLLATE "C", 0) & 9223372036854775807) % shards,
           topic, aggregate_id, msg_id, event_type, payload, headers
    FROM unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::bytea[], $6::json[])
           WITH ORDINALITY AS m (topic, aggregate_id, msg_id, event_type, payload, headers, n),
         ${schema}.settings
    ORDER BY n`;
}

/** node-postgres writes a Buffer as bytes, and a plain Uint8Array as JSON. */
function toBuffer({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}
