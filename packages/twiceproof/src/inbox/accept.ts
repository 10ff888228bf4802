import { hash } from 'node:crypto';
import { TwiceproofError } from '../errors.ts';
import type { Message, MessageId } from '../message.ts';
import { queryNamed } from '../named-statements.ts';
import { point } from '../points.ts';
import { quotedSchema } from '../schema-name.ts';
import { requireTransaction, type Tx } from '../tx.ts';
import { timeOfUuidv7 } from '../uuid.ts';

/**
 * - `first`: it was not there, and is now; its effects belong into this same transaction
 * - `duplicate`: it has been processed
 * - `altered`: its id has been processed, with other content
 * - `late`: older than what the inbox remembers, so nobody can say
 * - `future`: its time has no partition yet; the clock of its sender is wrong
 */
export type Verdict = 'first' | 'duplicate' | 'altered' | 'late' | 'future';

export interface Arrived {
  id: MessageId;
  /** See `contentHash`. Defaults to 0: contents are not told apart. */
  content?: bigint;
}

export interface InboxOptions {
  /** Defaults to `twiceproof`. */
  schema?: string | undefined;
}

export interface Inbox {
  /**
   * Whether this message is new to this consumer; from now on it is not. Its effects belong into the same transaction:
   * they are committed together, or neither is.
   */
  accept(tx: Tx, message: Arrived & { consumer: string }): Promise<Verdict>;
  /**
   * A verdict for each, at the same index. Waits for a transaction that has one of these ids and has not ended yet. An id
   * that comes twice in one call is `first` once, and then judged against that one.
   */
  acceptAll(tx: Tx, consumer: string, messages: readonly Arrived[]): Promise<Verdict[]>;
}

/** Over what the message says, and not over its headers: these may change on the way. */
export function contentHash({ type, aggregateId, payload }: Pick<Message, 'type' | 'aggregateId' | 'payload'>): bigint {
  // With their lengths, so that nothing can move from one part to the next.
  const parts = [Buffer.from(`${type.length} ${type} ${aggregateId.length} ${aggregateId} `), payload];
  // In one go, and as text: a hash that is fed in pieces costs more than twice as much for a message of usual size.
  return BigInt.asIntN(64, BigInt(`0x${hash('sha256', Buffer.concat(parts), 'hex').slice(0, 16)}`));
}

export function createInbox(options: InboxOptions = {}): Inbox {
  const schema = quotedSchema(options.schema);
  // The bounds are read by the statement that inserts. Ids outside of them never reach the table, where one without a
  // partition would fail the whole statement. Sorted, so that two that accept the same ids cannot wait for each other.
  const acceptText = `WITH bounds AS MATERIALIZED (SELECT floor, ceiling FROM ${schema}.inbox_bounds),
    asked AS MATERIALIZED (SELECT id, content FROM unnest($2::uuid[], $3::bigint[]) AS a (id, content)),
    accepted AS (
      INSERT INTO ${schema}.inbox (msg_id, consumer, content_hash)
      SELECT id, $1::text, content FROM asked, bounds WHERE id >= floor AND id < ceiling
      ORDER BY id ON CONFLICT DO NOTHING RETURNING msg_id)
    SELECT id, CASE WHEN accepted.msg_id IS NOT NULL THEN 'first' WHEN id < floor THEN 'late'
      WHEN id >= ceiling THEN 'future' ELSE 'duplicate' END AS verdict
    FROM bounds, asked LEFT JOIN accepted ON accepted.msg_id = asked.id`;
  const contentText = `SELECT msg_id, content_hash::text AS content FROM ${schema}.inbox
    WHERE consumer = $1 AND msg_id = ANY ($2::uuid[])`;

  async function acceptAll(tx: Tx, consumer: string, messages: readonly Arrived[]): Promise<Verdict[]> {
    const arrived = messages.map(({ id, content = 0n }) => ({ id: uuidv7InSmallLetters(id), content }));
    await requireTransaction(tx, schema);
    const once = new Map<MessageId, bigint>();
    for (const { id, content } of arrived) if (!once.has(id)) once.set(id, content);
    if (once.size === 0) return [];
    await point('inbox:asking');
    const verdicts = await insert(tx, consumer, once);
    const known = [...verdicts].filter(([, verdict]) => verdict === 'duplicate').map(([id]) => id);
    const stored = await storedContents(tx, consumer, known);
    const seen = new Set<MessageId>();
    return arrived.map(({ id, content }) => {
      const verdict = verdicts.get(id)!;
      const isAgain = seen.has(id);
      seen.add(id);
      if (verdict === 'duplicate') return stored.get(id) === content ? 'duplicate' : 'altered';
      if (verdict !== 'first' || !isAgain) return verdict;
      return once.get(id) === content ? 'duplicate' : 'altered';
    });
  }

  async function insert(tx: Tx, consumer: string, once: Map<MessageId, bigint>): Promise<Map<MessageId, Verdict>> {
    try {
      const { rows } = await queryNamed(tx, acceptText, [consumer, [...once.keys()], [...once.values()].map(String)]);
      if (rows.length !== once.size) throw noBounds();
      return new Map(rows.map((row) => [String(row['id']), row['verdict'] as Verdict]));
    } catch (error) {
      // Its partition went between the look at the floor and the insert. That it is gone is the fence: this fails, and
      // nothing is taken for new that was forgotten.
      if ((error as { code?: unknown }).code !== '23514') throw error;
      throw expired(error);
    }
  }

  /** In a statement of its own: in that of the insert the row of another may not be visible. */
  async function storedContents(tx: Tx, consumer: string, ids: readonly MessageId[]): Promise<Map<MessageId, bigint>> {
    if (ids.length === 0) return new Map();
    const { rows } = await tx.query(contentText, [consumer, ids]);
    // The insert has met the row, and now it is not there: its partition goes. Not `altered`, which would be a guess.
    if (rows.length !== ids.length) throw expired();
    return new Map(rows.map((row) => [String(row['msg_id']), BigInt(String(row['content']))]));
  }

  return {
    acceptAll,
    accept: async (tx, { consumer, ...message }) => (await acceptAll(tx, consumer, [message]))[0]!,
  };
}

function uuidv7InSmallLetters(id: MessageId): MessageId {
  if (timeOfUuidv7(id) === undefined) throw new TwiceproofError('TP_MESSAGE_INVALID', `'${id}' is not a UUIDv7`);
  return id.toLowerCase();
}

function expired(cause?: unknown): TwiceproofError {
  return new TwiceproofError('TP_INBOX_EXPIRED', 'a partition of the inbox went meanwhile', { cause });
}

function noBounds(): TwiceproofError {
  return new TwiceproofError(
    'TP_SCHEMA_VERSION',
    'the inbox is not open: no keeper (createInboxKeeper) has made a pass',
  );
}
