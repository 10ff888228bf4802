/**
 * For a status that is shown every few seconds: numbers and no ids, by one statement in each database, without topic and
 * ledger. It believes the tables, so it is no verdict.
 */
import type pg from 'pg';

export interface Counts {
  orders: number;
  /** In the outbox. */
  messages: number;
  charges: number;
  effects: number;
  /** Charges beyond one for each order, and effects beyond one for each message. */
  doubled: number;
  /** Of the messages that are older than the horizon: those without an effect, and not held or parked. */
  lost: number;
  waiting: number;
}

export interface CountOptions {
  orders: Pick<pg.Pool, 'query'>;
  payments: Pick<pg.Pool, 'query'>;
  topics: readonly string[];
  horizonMs: number;
}

/** What is counted as lost is counted by the time in the ids (UUIDv7), which both sides have: so it may be read at any time. */
export async function readCounts({ orders, payments, topics, horizonMs }: CountOptions): Promise<Counts> {
  const before = idAt(Date.now() - horizonMs);
  const done = await payments.query<Record<'charges' | 'charged' | 'effects' | 'affected' | 'old' | 'held', number>>(
    `SELECT (SELECT count(*) FROM charges)::float8 AS charges,
       (SELECT count(DISTINCT order_id) FROM charges)::float8 AS charged,
       sum(times)::float8 AS effects, count(*)::float8 AS affected, count(*) FILTER (WHERE msg_id < $1)::float8 AS old,
       (SELECT count(*) FROM twiceproof.held WHERE topic = ANY ($2))::float8 AS held
     FROM (SELECT msg_id, count(*) AS times FROM effects GROUP BY consumer, msg_id) AS each`,
    [before, topics],
  );
  const begun = await orders.query<Record<'orders' | 'messages' | 'old' | 'parked', number>>(
    `SELECT (SELECT count(*) FROM orders)::float8 AS orders, count(*)::float8 AS messages,
       count(*) FILTER (WHERE msg_id < $1)::float8 AS old,
       (SELECT count(*) FROM twiceproof.relay_parked WHERE topic = ANY ($2))::float8 AS parked
     FROM twiceproof.outbox WHERE topic = ANY ($2)`,
    [before, topics],
  );
  const { charges, charged, effects, affected, held, old } = done.rows[0]!;
  const { parked, messages, ...asked } = begun.rows[0]!;
  return {
    orders: asked.orders,
    messages,
    charges,
    effects: effects ?? 0,
    doubled: charges - charged + (effects ?? 0) - affected,
    lost: Math.max(0, asked.old - old - held - parked),
    waiting: held + parked,
  };
}

/** The lowest UUIDv7 of that time. */
function idAt(ms: number): string {
  const time = Math.floor(ms).toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-000000000000`;
}
