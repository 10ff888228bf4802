/** Whether everything that was written down has had its effect. The judge decides later whether it had the right one. */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { DatabaseUrls } from '../../system/databases.ts';

export interface Drained {
  isDrained: boolean;
  /** Messages of the outbox, and how many of them had an effect or are held. */
  written: number;
  done: number;
}

const lookEveryMs = 500;

export interface DrainOptions {
  timeoutMs: number;
  /** It is given up earlier if nothing more was done for so long. */
  stalledMs: number;
  /** Whether the consumer keeps messages aside. */
  isHeld: boolean;
  signal: AbortSignal;
}

export async function untilDrained(
  urls: DatabaseUrls,
  { timeoutMs, stalledMs, isHeld, signal }: DrainOptions,
): Promise<Drained> {
  const deadline = performance.now() + timeoutMs;
  const orders = new pg.Client(urls.orders);
  const payments = new pg.Client(urls.payments);
  await Promise.all([orders.connect(), payments.connect()]);
  let before = -1;
  let movedAt = performance.now();
  try {
    for (;;) {
      const [written, done] = await Promise.all([
        count(orders, 'SELECT count(*) FROM twiceproof.outbox'),
        count(
          payments,
          `SELECT (SELECT count(DISTINCT msg_id) FROM effects) + ${isHeld ? '(SELECT count(*) FROM twiceproof.held)' : 0} AS count`,
        ),
      ]);
      const isDrained = done >= written;
      const now = performance.now();
      if (done !== before) movedAt = now;
      before = done;
      const isOver = signal.aborted || now > deadline || now - movedAt > stalledMs;
      if (isDrained || isOver) return { isDrained, written, done };
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
