import assert from 'node:assert/strict';
import { test } from 'node:test';
import { measureConsume, type ConsumeCall } from './consume.ts';

/** What the program says at each look; this process stands for all that is watched. */
async function measureLooks(messages: number, looks: readonly number[]) {
  const left = [...looks];
  const program = {
    pid: process.pid,
    admin: '',
    consumed: async () => left.shift() ?? looks.at(-1)!,
    stop: async () => {},
    hasEnded: () => left.length === 0,
    said: () => 'no more looks',
  };
  const world = { postgres: { pid: process.pid }, kafka: { brokers: [{ pid: process.pid }] } };
  return measureConsume({
    world: world as unknown as ConsumeCall['world'],
    database: undefined,
    topic: { name: 'short', messages, orders: messages, ids: [] },
    warmS: 60,
    capS: 60,
    start: async () => program,
    charges: undefined,
    signal: new AbortController().signal,
  });
}

test('it is measured from the first batch after a quarter of the messages to the last one', async () => {
  const { messages } = await measureLooks(1_000, [0, 100, 300, 300, 600, 1_000, 1_000]);
  assert.equal(messages, 700);
});

test('all of a short topic that comes between two looks is measured from the look before', async () => {
  const { messages, perSecond } = await measureLooks(1_000, [0, 0, 1_000, 1_000, 1_000]);
  assert.equal(messages, 1_000);
  assert.ok(perSecond > 0);
  assert.equal((await measureLooks(1_000, [1_000, 1_000])).messages, 1_000, 'before the first look');
});
