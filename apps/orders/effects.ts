import type { Caller, Outcome } from 'twiceproof/edge';
import type { Message } from 'twiceproof/message';
import type { Tx } from 'twiceproof/tx';
import { uuidv7 } from 'twiceproof/uuid';
import type { Create, SetStatus } from './commands.ts';

/** What is stored as the result; the doors make their answers from it. */
export interface Created {
  order_id: string;
  status: string;
}

export interface StatusSet {
  order_id: string;
  status: string;
  /** Missing where there is no such order (code 404). */
  version?: number;
}

export const topic = 'order.events';

/** Writes the messages in the transaction, or not at all in a baseline without an outbox. */
export type Append = (tx: Tx, messages: readonly Message[]) => Promise<unknown>;

/** A new order comes to the same whatever is in the database, so all of it can be said beforehand. */
export function planOrder({ tenant, account_id, amount_cents }: Create, caller: Caller) {
  const order_id = uuidv7();
  const status = 'created';
  return {
    outcome: { code: 201, result: { order_id, status } },
    row: { order_id, tenant, account_id, amount_cents, status },
    messages: [event(order_id, 'order.created', { order_id, account_id, amount_cents, status, version: 1 }, caller)],
  };
}

export const orderColumns = {
  order_id: 'uuid',
  tenant: 'text',
  account_id: 'bigint',
  amount_cents: 'bigint',
  status: 'text',
} as const;

const columnList = Object.keys(orderColumns).join(', ');
export const insertOrders = `INSERT INTO orders (${columnList}) SELECT ${columnList} FROM won RETURNING 1`;

export async function createOrder(tx: Tx, append: Append, command: Create, caller: Caller): Promise<Outcome<Created>> {
  const { outcome, row, messages } = planOrder(command, caller);
  await tx.query(`INSERT INTO orders (${columnList}) VALUES ($1, $2, $3, $4, $5)`, Object.values(row));
  await append(tx, messages);
  return outcome;
}

/** No order twice in one call. */
export async function setStatuses(
  tx: Tx,
  append: Append,
  commands: readonly SetStatus[],
  callers: readonly Caller[],
): Promise<Outcome<StatusSet>[]> {
  const ids = commands.map(({ order_id }) => order_id);
  // In the order of their ids, as every other transaction does: so no two wait for each other. And before the
  // append, which is what keeps an order's events in order.
  await tx.query('SELECT 1 FROM orders WHERE order_id = ANY($1::uuid[]) ORDER BY order_id FOR UPDATE', [ids]);
  const { rows } = await tx.query(
    `UPDATE orders o SET status = wanted.status, version = version + 1
       FROM unnest($1::uuid[], $2::text[], $3::text[]) AS wanted (id, tenant, status)
       WHERE o.order_id = wanted.id AND o.tenant = wanted.tenant
       RETURNING o.order_id, o.version`,
    [ids, commands.map(({ tenant }) => tenant), commands.map(({ status }) => status)],
  );
  const versions = new Map(rows.map((row) => [String(row['order_id']), Number(row['version'])]));
  const changed = commands.flatMap(({ order_id, status }, n) => {
    const version = versions.get(order_id);
    if (version === undefined) return [];
    return [event(order_id, 'order.status_changed', { order_id, status, version }, callers[n]!)];
  });
  await append(tx, changed);
  return commands.map(({ order_id, status }) => {
    const version = versions.get(order_id);
    return version === undefined
      ? { code: 404, result: { order_id, status } }
      : { code: 200, result: { order_id, status, version } };
  });
}

function event(orderId: string, type: string, payload: object, { traceparent }: Caller): Message {
  const message = { topic, aggregateId: orderId, type, payload: Buffer.from(JSON.stringify(payload)) };
  return traceparent === undefined ? message : { ...message, headers: { traceparent } };
}
