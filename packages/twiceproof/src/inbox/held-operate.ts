/** What operators see of held messages, and what they can do with many of them. */
import type { Tx } from '../tx.ts';
import {
  entryColumns,
  rowColumns,
  toEntry,
  toHeld,
  withoutNul,
  type HeldEntry,
  type HeldKind,
  type HeldRow,
  type Wish,
} from './held-row.ts';
import { lockHeld } from './held-take.ts';

export interface Operating {
  /** With their records. */
  list(tx: Tx, filter?: HeldFilter): Promise<HeldRow[]>;
  /** Without their records, for any number of them: page by page, by `after`. */
  find(tx: Tx, filter?: HeldFilter): Promise<HeldEntry[]>;
  tally(tx: Tx, filter?: HeldFilter): Promise<HeldTally>;
  /** By consumer, kind, topic and reason, the largest first. */
  groups(tx: Tx, filter?: HeldFilter): Promise<HeldGroup[]>;
  counts(tx: Tx, consumer: string): Promise<Map<HeldKind, number>>;
  /** For the consumer that runs. Answers of how many. */
  ask(tx: Tx, seqs: readonly bigint[], what: Wish): Promise<number>;
  /** Gives them up for good; what was late is not held again when it comes again. Answers those that were there. */
  drop(tx: Tx, seqs: readonly bigint[]): Promise<HeldEntry[]>;
}

export interface HeldFilter {
  consumer?: string | undefined;
  kind?: HeldKind | undefined;
  topic?: string | undefined;
  aggregateId?: string | undefined;
  /** Held for at least so long, by the clock of the database. */
  olderThanMs?: number | undefined;
  /** Whether there is a wish for it. */
  isAsked?: boolean | undefined;
  /** Only these. */
  seqs?: readonly bigint[] | undefined;
  /** Only behind this one. */
  after?: bigint | undefined;
  /** No further than this one. */
  upTo?: bigint | undefined;
  /** How many are answered at most; a tally counts all. Defaults to 100. */
  limit?: number | undefined;
}

export interface HeldTally {
  count: number;
  /** For how many of them there is a wish. */
  asked: number;
  /** The last one of them; 0 if there is none. */
  last: bigint;
}

export interface HeldGroup {
  consumer: string;
  kind: HeldKind;
  topic: string;
  reason: string;
  count: number;
  oldest: Date;
}

const defaultLimit = 100;

/** `schema`: ready to stand in SQL. */
export function operating(schema: string): Operating {
  const table = `${schema}.held`;
  const chosen = `FROM ${table}
    WHERE ($1::text IS NULL OR consumer = $1) AND ($2::text IS NULL OR kind = $2) AND ($3::text IS NULL OR topic = $3)
      AND ($4::text IS NULL OR aggregate_id = $4) AND ($5::bigint[] IS NULL OR held.seq = ANY ($5))
      AND ($6::float8 IS NULL OR held_at <= clock_timestamp() - $6 * interval '1 millisecond')
      AND ($7::boolean IS NULL OR (asked IS NOT NULL) = $7)
      AND ($8::bigint IS NULL OR held.seq > $8) AND ($9::bigint IS NULL OR held.seq <= $9)`;

  async function page(tx: Tx, columns: string, filter: HeldFilter): Promise<Record<string, unknown>[]> {
    const text = `SELECT ${columns} ${chosen} ORDER BY held.seq LIMIT $10`;
    return (await tx.query(text, [...valuesOf(filter), filter.limit ?? defaultLimit])).rows;
  }

  async function tally(tx: Tx, filter: HeldFilter = {}): Promise<HeldTally> {
    const { rows } = await tx.query(
      `SELECT count(*)::int AS count, count(asked)::int AS asked, COALESCE(max(held.seq), 0)::text AS last ${chosen}`,
      valuesOf(filter),
    );
    const { count, asked, last } = rows[0]!;
    return { count: Number(count), asked: Number(asked), last: BigInt(String(last)) };
  }

  async function groups(tx: Tx, filter: HeldFilter = {}): Promise<HeldGroup[]> {
    const { rows } = await tx.query(
      `SELECT consumer, kind, topic, reason, count(*)::int AS count, min(held_at) AS oldest ${chosen}
       GROUP BY consumer, kind, topic, reason ORDER BY count(*) DESC, consumer, kind, topic, reason LIMIT $10`,
      [...valuesOf(filter), filter.limit ?? defaultLimit],
    );
    return rows as unknown as HeldGroup[];
  }

  async function counts(tx: Tx, consumer: string): Promise<Map<HeldKind, number>> {
    const { rows } = await tx.query(
      `SELECT kind, count(*)::int AS count FROM ${table} WHERE consumer = $1 GROUP BY kind`,
      [consumer],
    );
    return new Map(rows.map((row) => [row['kind'] as HeldKind, Number(row['count'])]));
  }

  async function ask(tx: Tx, seqs: readonly bigint[], what: Wish): Promise<number> {
    const found = await lockHeld(tx, table, seqs);
    // Those for which it was asked before need no new row.
    const text = `UPDATE ${table} SET asked = $2 WHERE seq = ANY ($1::bigint[]) AND asked IS DISTINCT FROM $2`;
    await tx.query(text, [found, what]);
    return found.length;
  }

  async function drop(tx: Tx, seqs: readonly bigint[]): Promise<HeldEntry[]> {
    const found = await lockHeld(tx, table, seqs);
    // Not one of a time to come: it may come again in its time, and fail and be released then, and must run.
    const { rows } = await tx.query(
      `WITH gone AS (DELETE FROM ${table} WHERE seq = ANY ($1::bigint[]) RETURNING ${entryColumns}, content_hash),
         settled AS (INSERT INTO ${schema}.held_settled (msg_id, consumer, content_hash)
           SELECT msg_id, consumer, content_hash FROM gone
           WHERE msg_id IS NOT NULL AND kind <> 'future' ON CONFLICT DO NOTHING)
       SELECT * FROM gone ORDER BY seq::bigint`,
      [found],
    );
    return rows.map(toEntry);
  }

  return {
    list: async (tx, filter = {}) => (await page(tx, rowColumns, filter)).map(toHeld),
    find: async (tx, filter = {}) => (await page(tx, entryColumns, filter)).map(toEntry),
    tally,
    groups,
    counts,
    ask,
    drop,
  };
}

function valuesOf({ aggregateId, ...filter }: HeldFilter): unknown[] {
  return [
    filter.consumer ?? null,
    filter.kind ?? null,
    filter.topic ?? null,
    aggregateId === undefined ? null : withoutNul(aggregateId),
    filter.seqs?.map(String) ?? null,
    filter.olderThanMs ?? null,
    filter.isAsked ?? null,
    filter.after?.toString() ?? null,
    filter.upTo?.toString() ?? null,
  ];
}
