/** How held messages are worked off, by the consumer that has their handler. */
import type { MessageId } from '../message.ts';
import type { Tx } from '../tx.ts';
import { asReason, rowColumns, toHeld, withoutNul, type HeldKind, type HeldRow, type Wish } from './held-row.ts';

export interface Taking {
  /** What operators wish for behind this one, in their order, some at a time. */
  asked(tx: Tx, consumer: string, after: bigint): Promise<(InLine & { wish: Wish })[]>;
  /** The first ones that block these keys, so many of each at most, in their order. */
  firstOfKeys(tx: Tx, consumer: string, keys: readonly string[], ofEach: number): Promise<InLine[]>;
  /**
   * Takes them out, to run them in this transaction. Waits for whoever has one just now, and answers those that he has
   * left, in their order.
   */
  take(tx: Tx, seqs: readonly bigint[]): Promise<HeldRow[]>;
  /**
   * They could not be run (and so the transaction that took them is gone): they stay, with these reasons. No wish is left,
   * neither theirs nor that for a key which they block.
   */
  keep(tx: Tx, consumer: string, rows: readonly ToKeep[]): Promise<void>;
}

export interface InLine {
  seq: bigint;
  aggregateId?: string | undefined;
}

export interface ToKeep extends InLine {
  kind: HeldKind;
  reason: string;
  /** What it is held as from now on, and what makes it one message. */
  as?: { kind: 'late' | 'altered'; id: MessageId; aggregateId: string; content: bigint } | undefined;
}

const askedAtOnce = 100;

/** `schema`: ready to stand in SQL. */
export function taking(schema: string): Taking {
  const table = `${schema}.held`;

  async function asked(tx: Tx, consumer: string, after: bigint): Promise<(InLine & { wish: Wish })[]> {
    const { rows } = await tx.query(
      `SELECT seq::text AS seq, aggregate_id, asked FROM ${table}
       WHERE consumer = $1 AND asked IS NOT NULL AND held.seq > $2 ORDER BY held.seq LIMIT $3`,
      [consumer, String(after), askedAtOnce],
    );
    return rows.map((row) => ({ ...toInLine(row), wish: row['asked'] as Wish }));
  }

  async function firstOfKeys(tx: Tx, consumer: string, keys: readonly string[], ofEach: number): Promise<InLine[]> {
    const { rows } = await tx.query(
      `SELECT first.seq::text AS seq, key AS aggregate_id FROM unnest($2::text[]) AS key CROSS JOIN LATERAL (
         SELECT seq FROM ${table} WHERE consumer = $1 AND aggregate_id = key AND blocks_key ORDER BY seq LIMIT $3
       ) AS first ORDER BY first.seq`,
      [consumer, keys.map(withoutNul), ofEach],
    );
    return rows.map(toInLine);
  }

  async function take(tx: Tx, seqs: readonly bigint[]): Promise<HeldRow[]> {
    // Locked first and deleted then: whoever waited for a lock finds out here that the row is gone.
    const found = await lockHeld(tx, table, seqs);
    const text = `DELETE FROM ${table} WHERE seq = ANY ($1::bigint[]) RETURNING ${rowColumns}`;
    const { rows } = await tx.query(text, [found]);
    return rows.map(toHeld).toSorted((a, b) => Number(a.seq - b.seq));
  }

  async function keep(tx: Tx, consumer: string, rows: readonly ToKeep[]): Promise<void> {
    const keys = rows.filter(({ kind }) => kind === 'parked').map(({ aggregateId = '' }) => aggregateId);
    const released = `SELECT seq::text AS seq FROM ${table}
      WHERE consumer = $1 AND aggregate_id = ANY ($2::text[]) AND asked = 'release'`;
    const ofKeys = keys.length === 0 ? [] : (await tx.query(released, [consumer, keys])).rows;
    const reasons = new Map<bigint, string | null>(ofKeys.map((row) => [BigInt(String(row['seq'])), null]));
    for (const { seq, reason } of rows) reasons.set(seq, asReason(reason));
    await lockHeld(tx, table, [...reasons.keys()]);
    await tx.query(
      `UPDATE ${table} SET asked = NULL, reason = COALESCE(kept.reason, held.reason)
       FROM unnest($1::bigint[], $2::text[]) AS kept (seq, reason) WHERE held.seq = kept.seq`,
      [[...reasons.keys()].map(String), [...reasons.values()]],
    );
    for (const row of rows) await keepAs(tx, row);
  }

  /** A message is held once: if it is there already, that one counts, and this one goes. */
  async function keepAs(tx: Tx, { seq, as }: ToKeep): Promise<void> {
    if (!as) return;
    const identity = [String(seq), as.id, String(as.content)];
    await tx.query(
      `DELETE FROM ${table} held USING ${table} other WHERE held.seq = $1 AND other.consumer = held.consumer
         AND other.msg_id = $2 AND other.content_hash = $3 AND other.seq <> held.seq`,
      identity,
    );
    await tx.query(`UPDATE ${table} SET msg_id = $2, content_hash = $3, aggregate_id = $4, kind = $5 WHERE seq = $1`, [
      ...identity,
      withoutNul(as.aggregateId),
      as.kind,
    ]);
  }

  return { asked, firstOfKeys, take, keep };
}

/**
 * Whoever locks several does it in this order: by keys, since those who come with new messages ask key by key, and do not
 * know which numbers they will find.
 */
export async function lockHeld(tx: Tx, table: string, seqs: readonly bigint[]): Promise<string[]> {
  const { rows } = await tx.query(
    `SELECT seq::text AS seq FROM ${table} WHERE held.seq = ANY ($1::bigint[])
     ORDER BY aggregate_id COLLATE "C", held.seq FOR UPDATE`,
    [seqs.map(String)],
  );
  return rows.map((row) => String(row['seq']));
}

function toInLine(row: Record<string, unknown>): InLine {
  return { seq: BigInt(String(row['seq'])), aggregateId: (row['aggregate_id'] as string | null) ?? undefined };
}
