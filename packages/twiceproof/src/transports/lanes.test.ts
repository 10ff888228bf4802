import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bufferDelivery, createLane, createReceiver } from './lanes.ts';

const lane = { topic: 't', partition: 0 };
const empty = Buffer.alloc(0);

test('what a lane buffers is counted with headers, and a record without a byte counts too', () => {
  const state = createLane(lane, 0n);
  bufferDelivery(state, { lane, key: undefined, value: empty, headers: [], position: { ...lane, offset: 0n } });
  const least = state.bufferBytes;
  assert.ok(least > 100);
  const headers = [['h', Buffer.alloc(1_000_000)]] as const;
  bufferDelivery(state, { lane, key: undefined, value: empty, headers, position: { ...lane, offset: 1n } });
  assert.ok(state.bufferBytes > least + 1_000_000);
});

test('when all of it was handed out nothing is counted any more', async () => {
  const state = createLane(lane, 0n);
  const headers = [['h', Buffer.alloc(10)]] as const;
  bufferDelivery(state, { lane, key: empty, value: empty, headers, position: { ...lane, offset: 0n } });
  const receiver = createReceiver();
  receiver.assign([state]);
  assert.equal((await receiver.receive({ maxRecords: 5, waitMs: 0 }))?.deliveries.length, 1);
  assert.equal(state.bufferBytes, 0);
});
