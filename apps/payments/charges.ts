/** What payments does with the events of orders: the business SQL, all of it in the transaction that is given. */
import type { Handler, HandlerOfSets } from 'twiceproof/consumer';
import type { Tx } from 'twiceproof/tx';
import { uuidv7 } from 'twiceproof/uuid';
import type { ReceivedMessage } from 'twiceproof/wire';
import { readEvent, type OrderEvent } from './events.ts';

/** Under this name messages are processed once: it must not change. */
export const consumerName = 'payments';

/** Counted when they are written: what is rolled back and done again counts again. */
export interface ChargeCounts {
  charged(count: number): void;
  /** Of a type that is none of ours. */
  ignored(count: number): void;
}

export interface ChargeOptions extends ChargeCounts {
  /** For experiments: on which side of the charge it dies, so that it is between the two writes. */
  dies?: 'before-charge' | 'after-charge' | undefined;
}

export function chargeOrders(shape: 'set', options: ChargeOptions): HandlerOfSets;
export function chargeOrders(shape: 'set' | 'each', options: ChargeOptions): Handler;
export function chargeOrders(shape: 'set' | 'each', options: ChargeOptions): Handler {
  const apply = async (tx: Tx, messages: readonly ReceivedMessage[]): Promise<void> => {
    const events = messages.flatMap((message) => readEvent(message) ?? []);
    const created = events.filter(({ amount_cents }) => amount_cents !== undefined);
    options.ignored(messages.length - events.length);
    options.charged(created.length);
    if (events.length === 0) return;
    if (options.dies === 'before-charge') process.kill(process.pid, 'SIGKILL');
    await writeEffects(tx, events);
    if (options.dies === 'after-charge') process.kill(process.pid, 'SIGKILL');
  };
  return shape === 'set' ? { set: apply } : { each: async (tx, message) => apply(tx, [message]) };
}

/**
 * An order may come several times in one call: its effects in their order, and of its states the newest. Rows of orders are
 * locked in the order of their ids, as by every other transaction: so no two wait for each other.
 */
async function writeEffects(tx: Tx, events: readonly OrderEvent[]): Promise<void> {
  await tx.query(
    `WITH events AS MATERIALIZED (
       SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::int[], $6::bigint[], $7::uuid[]) WITH ORDINALITY
         AS e (msg_id, order_id, status, version, amount_cents, charge_id, n)),
     charged AS (
       INSERT INTO charges (charge_id, order_id, amount_cents)
       SELECT charge_id, order_id, amount_cents FROM events WHERE amount_cents IS NOT NULL ORDER BY order_id),
     states AS (
       INSERT INTO order_states AS known (order_id, status, version)
       SELECT DISTINCT ON (order_id) order_id, status, version FROM events ORDER BY order_id, version DESC
       ON CONFLICT (order_id) DO UPDATE SET status = excluded.status, version = excluded.version
         WHERE excluded.version > known.version)
     INSERT INTO effects (consumer, msg_id, order_id, version)
     SELECT $1, msg_id, order_id, version FROM events ORDER BY n`,
    [
      consumerName,
      events.map(({ msg_id }) => msg_id),
      events.map(({ order_id }) => order_id),
      events.map(({ status }) => status),
      events.map(({ version }) => version),
      events.map(({ amount_cents }) => amount_cents),
      events.map(() => uuidv7()),
    ],
  );
}
