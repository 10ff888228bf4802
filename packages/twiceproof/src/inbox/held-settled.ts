/** Which held messages were run or dropped. They may come again when the inbox has forgotten them, or never knew them. */
import type { MessageId } from '../message.ts';
import type { Tx } from '../tx.ts';
import type { Verdict } from './accept.ts';

export interface Settling {
  /** They are run or dropped on purpose, and are not held again if they come again. False of what was so before. */
  settled(tx: Tx, consumer: string, messages: readonly Identity[]): Promise<boolean[]>;
  /** Late messages are run or dropped on purpose; `duplicate` or `altered` where one of that id was before. */
  settleLate(tx: Tx, consumer: string, messages: readonly Identity[]): Promise<LateVerdict[]>;
}

/** What makes it one message. */
interface Identity {
  id: MessageId;
  content: bigint;
}

type LateVerdict = Extract<Verdict, 'first' | 'duplicate' | 'altered'>;

/** `schema`: ready to stand in SQL. */
export function settling(schema: string): Settling {
  const table = `${schema}.held_settled`;

  async function settled(tx: Tx, consumer: string, messages: readonly Identity[]): Promise<boolean[]> {
    if (messages.length === 0) return [];
    const { rows } = await tx.query(
      `INSERT INTO ${table} (consumer, msg_id, content_hash)
       SELECT $1, * FROM unnest($2::uuid[], $3::bigint[]) ON CONFLICT DO NOTHING
       RETURNING msg_id, content_hash::text AS content`,
      [consumer, messages.map(({ id }) => id), messages.map(({ content }) => String(content))],
    );
    const isNew = new Set(rows.map((row) => nameOf(row['msg_id'], row['content'])));
    // One that comes twice in one call was new once.
    return messages.map(({ id, content }) => isNew.delete(nameOf(id, content)));
  }

  async function settleLate(tx: Tx, consumer: string, messages: readonly Identity[]): Promise<LateVerdict[]> {
    if (messages.length === 0) return [];
    const ids = messages.map(({ id }) => id);
    const known = `SELECT msg_id, content_hash::text AS content FROM ${table}
      WHERE consumer = $1 AND msg_id = ANY ($2::uuid[])`;
    const { rows } = await tx.query(known, [consumer, ids]);
    const contents = new Set(rows.map((row) => nameOf(row['msg_id'], row['content'])));
    const settledIds = new Set(rows.map((row) => String(row['msg_id'])));
    const verdicts = messages.map(({ id, content }): LateVerdict => {
      const [name, knownId] = [nameOf(id, content), id.toLowerCase()];
      if (settledIds.has(knownId)) return contents.has(name) ? 'duplicate' : 'altered';
      settledIds.add(knownId);
      contents.add(name);
      return 'first';
    });
    const first = messages.filter((_, n) => verdicts[n] === 'first');
    const areNew = (await settled(tx, consumer, first)).values();
    // Another may have settled it meanwhile.
    return verdicts.map((verdict) => (verdict === 'first' && !areNew.next().value ? 'duplicate' : verdict));
  }

  return { settled, settleLate };
}

/** Ids are the same in capitals. */
function nameOf(id: unknown, content: unknown): string {
  return `${String(id).toLowerCase()} ${String(content)}`;
}
