/** Orders as Orders would write them: rows of the outbox, each change of an order under its row lock, with its version. */
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import { append } from './writers.ts';

const writersAtOnce = 4;
const amountOf = (n: number): number => 100 + (n % 900);

export interface OrderWriting {
  database: pg.Pool;
  topic: string;
  orders: number;
  /** How many of this topic there are already. Defaults to none. */
  before?: number;
}

/** Each is created and then changes its status up to three times. Answers when all are committed. */
export async function writeOrders({ database, topic, orders, before = 0 }: OrderWriting): Promise<void> {
  let begun = 0;
  const one = async (): Promise<void> => {
    while (begun < orders) {
      const n = before + (begun += 1);
      const orderId = orderIdOf(topic, n);
      const created = { order_id: orderId, account_id: n, amount_cents: amountOf(n), status: 'created', version: 1 };
      await appendOnce(database, topic, created, 'order.created');
      for (let version = 2; version <= 1 + (n % 4); version += 1) {
        const changed = { order_id: orderId, status: ['paid', 'shipped', 'delivered'][version - 2], version };
        await appendOnce(database, topic, changed, 'order.status_changed');
      }
    }
  };
  await Promise.all(Array.from({ length: writersAtOnce }, one));
}

/** A database that is away is waited for. Whether the append had come through is looked up, or an event would be written twice. */
async function appendOnce(
  database: pg.Pool,
  topic: string,
  event: { order_id: string; version: number },
  type: string,
): Promise<void> {
  const isThere = `SELECT FROM twiceproof.outbox WHERE topic = $1 AND aggregate_id = $2
    AND (convert_from(payload, 'utf8')::json ->> 'version')::int = $3`;
  for (let attempt = 1; attempt <= 600; attempt += 1) {
    try {
      if (attempt > 1 && (await database.query(isThere, [topic, event.order_id, event.version])).rowCount) return;
      return await append(database, topic, event.order_id, event, type);
    } catch {
      await delay(100);
    }
  }
  throw new Error('the database is away for more than a minute');
}

/** A UUID that is made of the trial's number and the order's. */
function orderIdOf(topic: string, n: number): string {
  const trial = Number(topic.replace(/\D/g, '')).toString(16).padStart(8, '0');
  return `${trial}-0000-4000-8000-${n.toString(16).padStart(12, '0')}`;
}
