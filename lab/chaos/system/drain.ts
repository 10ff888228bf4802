/** Whether everything that was written down has had its effect, and nothing stands open. The judge decides later whether it had the right one. */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { DatabaseUrls } from '../../system/databases.ts';

export interface Drained {
  isDrained: boolean;
  /** Messages of the outbox, and how many of them had an effect or are held. */
  written: number;
  done: number;
  /** Records that the consumer has not told the brokers that it is done with: a copy among them could still be done again. */
  unread: number;
  /** Transactions that have stood idle since before it was begun, and prepared ones. */
  open: number;
}

const lookEveryMs = 500;

export interface DrainOptions {
  timeoutMs: number;
  /** It is given up earlier if nothing more was done for so long. */
  stalledMs: number;
  /** Whether the consumer keeps messages aside. */
  isHeld: boolean;
  /** Such as of a recipe that tells the brokers too seldom to be asked. Defaults to none. */
  countUnread?: (() => Promise<number>) | undefined;
  signal: AbortSignal;
}

export async function untilDrained(
  urls: DatabaseUrls,
  { timeoutMs, stalledMs, isHeld, countUnread = async () => Promise.resolve(0), signal }: DrainOptions,
): Promise<Drained> {
  const deadline = performance.now() + timeoutMs;
  const orders = new pg.Client(urls.orders);
  const payments = new pg.Client(urls.payments);
  await Promise.all([orders.connect(), payments.connect()]);
  const began = await orders.query<{ at: string }>('SELECT clock_timestamp()::text AS at');
  let before = -1;
  let movedAt = performance.now();
  try {
    for (;;) {
      const [written, done, unread, ...open] = await Promise.all([
        count(orders, 'SELECT count(*) FROM twiceproof.outbox'),
        count(
          payments,
          `SELECT (SELECT count(DISTINCT msg_id) FROM effects) + ${isHeld ? '(SELECT count(*) FROM twiceproof.held)' : 0} AS count`,
        ),
        // Of brokers that do not answer nobody knows; they are asked again.
        countUnread().catch(() => Infinity),
        // Both databases are on one server, with one clock.
        count(orders, openTransactions, [began.rows[0]!.at]),
        count(payments, openTransactions, [began.rows[0]!.at]),
      ]);
      const stuck = open[0] + open[1];
      const isDrained = done >= written && unread === 0 && stuck === 0;
      const now = performance.now();
      const left = written - done + unread + stuck;
      if (left !== before) movedAt = now;
      before = left;
      const isOver = signal.aborted || now > deadline || now - movedAt > stalledMs;
      if (isDrained || isOver) return { isDrained, written, done, unread, open: stuck };
      await delay(lookEveryMs);
    }
  } finally {
    await Promise.all([orders.end(), payments.end()]);
  }
}

const openTransactions = `SELECT (SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND xact_start < $1::timestamptz)
  + (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()) AS count`;

async function count(client: pg.Client, text: string, values: readonly string[] = []): Promise<number> {
  const { rows } = await client.query<{ count: string }>(text, [...values]);
  return Number(rows[0]?.count);
}
