/** Whether everything that was written down has had its effect. The judge decides later whether it had the right one. */
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
  let before = -1;
  let movedAt = performance.now();
  try {
    for (;;) {
      const [written, done, unread] = await Promise.all([
        count(orders, 'SELECT count(*) FROM twiceproof.outbox'),
        count(
          payments,
          `SELECT (SELECT count(DISTINCT msg_id) FROM effects) + ${isHeld ? '(SELECT count(*) FROM twiceproof.held)' : 0} AS count`,
        ),
        // Of brokers that do not answer nobody knows; they are asked again.
        countUnread().catch(() => Infinity),
      ]);
      const isDrained = done >= written && unread === 0;
      const now = performance.now();
      const left = written - done + unread;
      if (left !== before) movedAt = now;
      before = left;
      const isOver = signal.aborted || now > deadline || now - movedAt > stalledMs;
      if (isDrained || isOver) return { isDrained, written, done, unread };
      await delay(lookEveryMs);
    }
  } finally {
    await Promise.all([orders.end(), payments.end()]);
  }
}

async function count(client: pg.Client, text: string): Promise<number> {
  const { rows } = await client.query<{ count: string }>(text);
  return Number(rows[0]?.count);
}
