import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fromDelivery, type ReceivedMessage } from 'twiceproof/wire';
import { InvalidEvent, readEvent } from './events.ts';
import { eventRecord, type Event } from './program-under-test.ts';

const orderId = '0190a0b0-0000-4000-8000-00000000abcd';

function received(event: Event): ReceivedMessage {
  const { key, value, headers = {} } = eventRecord('order.events', { orderId, ...event });
  const message = fromDelivery({
    lane: { topic: 'order.events', partition: 0 },
    key: Buffer.from(key),
    value,
    headers: Object.entries(headers).map(([name, text]) => [name, Buffer.from(text)] as const),
  });
  assert.ok(!('problem' in message));
  return message;
}

test('a new order has an amount, a change of its status has none', () => {
  const created = received({});
  assert.deepEqual(readEvent(created), {
    msg_id: created.id,
    order_id: orderId,
    status: 'created',
    version: 1,
    amount_cents: 0x0190a0 + 1,
  });
  assert.deepEqual(Object.keys(readEvent(received({ version: 2 }))!), ['msg_id', 'order_id', 'status', 'version']);
});

test('other types are none of ours, whatever they hold', () => {
  assert.equal(readEvent(received({ type: 'order.archived', payload: 'anything' })), undefined);
});

test('what is no event says all that is wrong with it, and none of its values', () => {
  const right = { order_id: orderId, status: 'created', version: 1, amount_cents: 5 };
  const wrong: [payload: unknown, why: RegExp][] = [
    ['secret', /^order.created: the payload is not a JSON object$/],
    ['null', /not a JSON object/],
    [{}, /order_id is not a UUID; .*status is not a text; version is not .*; amount_cents is not/],
    [{ ...right, order_id: orderId.replace('a', 'b') }, /order_id is not the key/],
    [{ ...right, status: 'a\0b' }, /status is not a text/],
    [{ ...right, version: 0 }, /version is not/],
    [{ ...right, version: 2 ** 31 }, /version is not/],
    [{ ...right, version: '1' }, /version is not/],
    [{ ...right, amount_cents: 0 }, /amount_cents is not/],
    [{ ...right, amount_cents: 1.5 }, /amount_cents is not/],
    [{ ...right, amount_cents: 2 ** 53 }, /amount_cents is not/],
  ];
  for (const [payload, why] of wrong) {
    assert.throws(
      () => readEvent(received({ payload })),
      (error) => error instanceof InvalidEvent && why.test(error.message) && !error.message.includes('secret'),
      JSON.stringify(payload),
    );
  }
});
