import assert from 'node:assert/strict';
import type pg from 'pg';
import type { Wanted } from './request.ts';

interface Intent extends Wanted {
  /** What was carried out, and its answer, the same each time. */
  done?: { command: string; answer: string; changed: boolean };
  /** Other commands that came under the same key, and were told so. */
  toldReused: Set<string>;
}

/** What clients were told, to be compared with what is stored in the end. */
export function createLedger() {
  const intents = new Map<string, Intent>();
  const orderIds = new Set<string>();

  function intentOf(wanted: Wanted): Intent {
    const name = JSON.stringify([wanted.tenant, wanted.operation, wanted.key]);
    const intent = intents.get(name) ?? { ...wanted, toldReused: new Set<string>() };
    intents.set(name, intent);
    return intent;
  }

  /** `changed`: whether it changed an order, or found none. */
  function done(wanted: Wanted, answer: string, changed: boolean): void {
    const intent = intentOf(wanted);
    const now = { command: wanted.command, answer, changed };
    intent.done ??= now;
    assert.deepEqual(now, intent.done, 'one key, one command, one answer');
  }

  function reused(wanted: Wanted): void {
    intentOf(wanted).toldReused.add(wanted.command);
  }

  /** `unanswered`: how many requests may have been carried out though nobody heard of it. */
  async function compare(pool: pg.Pool, unanswered: number): Promise<void> {
    for (const [name, intent] of intents) {
      assert.ok(intent.done, `${name}: it was told that its key was used for something else, and it never was`);
      assert.ok(!intent.toldReused.has(intent.done.command), `${name}: the same request was told that it is another`);
    }
    const { rows: keys } = await pool.query<{ tenant: string; operation: string; key: string }>(
      'SELECT principal AS tenant, operation, idem_key AS key FROM twiceproof.idempotency_keys',
    );
    for (const { tenant, key } of keys) {
      assert.match(key, /^[\x21-\x7e]{1,255}$/);
      assert.match(tenant, /^[A-Za-z0-9._:-]{1,128}$/);
    }
    const stored = new Set(keys.map(({ tenant, operation, key }) => JSON.stringify([tenant, operation, key])));
    const missing = [...intents.keys()].filter((name) => !stored.has(name));
    assert.deepEqual(missing, [], 'every key that was answered is stored');
    const changes = [...intents.values()].filter(({ operation }) => operation === 'orders.set-status');
    const creates = keys.filter(({ operation }) => operation === 'orders.create').length;
    assert.equal(keys.length - creates, changes.length, 'keys of changes');

    const { rows: orders } = await pool.query<{ order_id: string }>('SELECT order_id::text FROM orders');
    const unheard = orders.filter(({ order_id }) => !orderIds.has(order_id)).length;
    assert.ok(unheard <= unanswered, `${unheard} orders of which nobody was told`);
    assert.equal(orders.length - unheard, orderIds.size, 'orders that were promised');
    assert.equal(creates, orders.length, 'each order has its key, and each key its order');

    const { rows: messages } = await pool.query(
      `SELECT count(*) FILTER (WHERE event_type = 'order.created')::int AS created,
              count(*) FILTER (WHERE event_type = 'order.status_changed')::int AS changed, count(*)::int AS all
         FROM twiceproof.outbox`,
    );
    const changed = changes.filter((intent) => intent.done?.changed).length;
    assert.deepEqual(messages, [{ created: orders.length, changed, all: orders.length + changed }], 'messages');
  }

  return { done, reused, promised: (orderId: string) => orderIds.add(orderId), compare };
}
