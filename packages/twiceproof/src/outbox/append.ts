import { durableCommit } from '../connection.ts';
import { TwiceproofError } from '../errors.ts';
import { isTopicName, type Message, type MessageId } from '../message.ts';
import { point } from '../points.ts';
import { quotedSchema } from '../schema-name.ts';
import { requireTransaction, type Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { checkMessage, longestName, type MessageLimits } from './limits.ts';

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
  /** Checks the messages and gives them their ids, for a statement that writes them together with other rows. */
  prepare(messages: readonly Message[]): PreparedMessages;
}

export interface PreparedMessages {
  ids: MessageId[];
  /** As in `messageColumns`: a list for each column. */
  columns: unknown[][];
}

export function createOutbox(options: OutboxOptions): Outbox {
  const schema = quotedSchema(options.schema);
  const columnLists = messageColumns.map(({ type }, n) => `$${n + 1}::${type}[]`).join(', ');
  const columnNames = messageColumns.map(({ name }) => name).join(', ');
  // What is published must not be lost when the server crashes, so whoever appends waits for the disk.
  const statement = `WITH durable AS MATERIALIZED (SELECT ${durableCommit})
    ${insertMessages(schema, `durable, unnest(${columnLists}) WITH ORDINALITY AS m (${columnNames}, n)`)}`;
  for (const topic of options.topics) {
    if (!isTopicName(topic)) throw new TwiceproofError('TP_OPTION', `'${topic}' is no name of a topic`);
  }
  if ((options.limits?.nameBytes ?? 0) > longestName) {
    throw new TwiceproofError('TP_OPTION', `limits.nameBytes is ${longestName} at most`);
  }
  const topics = new Set(options.topics);
  const newId = options.newId ?? uuidv7;

  function prepare(messages: readonly Message[]): PreparedMessages {
    for (const message of messages) checkMessage(message, topics, options.limits);
    const ids = messages.map(() => newId());
    return {
      ids,
      columns: [
        messages.map(({ topic }) => topic),
        messages.map(({ aggregateId }) => aggregateId),
        ids,
        messages.map(({ type }) => type),
        messages.map(({ payload }) => toBuffer(payload)),
        messages.map(({ headers }) => (headers ? JSON.stringify(headers) : null)),
      ],
    };
  }

  async function append(tx: Tx, messages: readonly Message[]): Promise<MessageId[]> {
    const { ids, columns } = prepare(messages);
    await requireTransaction(tx, schema);
    if (messages.length === 0) return [];
    const { rowCount } = await tx.query(statement, columns);
    if (rowCount !== messages.length) {
      throw new TwiceproofError('TP_SCHEMA_VERSION', `${rowCount} of ${messages.length} messages were written`);
    }
    await point('outbox:appended');
    return ids;
  }

  return { append, prepare };
}

/** What a statement that writes messages needs of each of them, in this order. */
export const messageColumns = [
  { name: 'topic', type: 'text' },
  { name: 'aggregate_id', type: 'text' },
  { name: 'msg_id', type: 'uuid' },
  { name: 'event_type', type: 'text' },
  { name: 'payload', type: 'bytea' },
  { name: 'headers', type: 'json' },
] as const;

/** Not by Kafka's hash: shards and partitions must not go together. */
export function shardOf(aggregateId: string, shards: string): string {
  return `((hashtextextended(${aggregateId} COLLATE "C", 0) & 9223372036854775807) % ${shards})`;
}

/**
 * Writes the rows of `source`, which has the columns above and `n`, in the order of `n`.
 *
 * The count of shards is a scalar: the planner knows that it is one, also of a table that was never analysed. Whoever finds
 * none fails, because a shard must not be null: a transaction that has an older snapshot than a change of the count
 * finds an empty table, and must not go on (reshard.ts).
 */
export function insertMessages(schema: string, source: string): string {
  const columns = messageColumns.map(({ name }) => name).join(', ');
  return `INSERT INTO ${schema}.outbox (shard, ${columns})
    SELECT ${shardOf('aggregate_id', `(SELECT shards FROM ${schema}.settings)`)}, ${columns}
    FROM ${source}
    ORDER BY n`;
}

/** node-postgres writes a Buffer as bytes, and a plain Uint8Array as JSON. */
function toBuffer({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}
