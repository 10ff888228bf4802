import assert from 'node:assert/strict';
import {
  assertAllInKeyOrder,
  assertNothingComes,
  numbered,
  quietMs,
  settleUntil,
  text,
  timed,
  type TransportCase,
} from './transport-kit.ts';

export const receivingCases: TransportCase[] = [
  {
    name: 'what was received and not settled comes again',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const group = kit.harness.group();
      await kit.publish(numbered(topic, 10));
      const first = await kit.subscribe({ group, topics: [topic] });
      await kit.receive(first);
      await first.close();
      const second = await kit.subscribe({ group, topics: [topic] });
      const again = await settleUntil(second, (settled) => settled.length >= 10);
      assertAllInKeyOrder(numbered(topic, 10), again);
    },
  },
  {
    name: 'what was settled does not come again',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 2 });
      const group = kit.harness.group();
      await kit.publish(numbered(topic, 20, { keys: 8 }));
      const first = await kit.subscribe({ group, topics: [topic] });
      await settleUntil(first, (settled) => settled.length >= 20);
      await first.close();
      const second = await kit.subscribe({ group, topics: [topic] });
      await kit.publish(numbered(topic, 1, { from: 20 }));
      const next = await settleUntil(second, (settled) => settled.length >= 1);
      assert.deepEqual(next.map(text), ['20']);
      await assertNothingComes(second);
    },
  },
  {
    name: 'one message can be settled at a time',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const group = kit.harness.group();
      await kit.publish(numbered(topic, 10));
      const first = await kit.subscribe({ group, topics: [topic] });
      const { deliveries } = await kit.receive(first);
      assert.equal(deliveries.length, 10);
      for (const delivery of deliveries.slice(0, 4)) assert.equal(await first.settle([delivery]), 'settled');
      await first.close();
      const second = await kit.subscribe({ group, topics: [topic] });
      const rest = await settleUntil(second, (settled) => settled.length >= 6);
      assert.deepEqual(rest.map(text), ['4', '5', '6', '7', '8', '9']);
    },
  },
  {
    name: 'a gap among the settled is not passed, and closing it passes what lies beyond',
    features: ['positions'],
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const group = kit.harness.group();
      await kit.publish(numbered(topic, 10));
      const first = await kit.subscribe({ group, topics: [topic] });
      const batch = await kit.receive(first);
      const gap = batch.deliveries[3]!;
      await first.settle(batch.deliveries.filter((delivery) => delivery !== gap).reverse());
      await first.close();

      const second = await kit.subscribe({ group, topics: [topic] });
      const again = await kit.receive(second);
      assert.deepEqual(again.deliveries.map(text), ['3', '4', '5', '6', '7', '8', '9']);
      await second.settle(again.deliveries.slice(1));
      await second.settle(again.deliveries.slice(0, 1));
      await second.close();

      const third = await kit.subscribe({ group, topics: [topic] });
      await assertNothingComes(third);
    },
  },
  {
    name: 'a lane has one batch in flight',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      await kit.publish(numbered(topic, 20));
      const subscription = await kit.subscribe({ topics: [topic] });
      const first = await kit.receive(subscription, 5);
      await assertNothingComes(subscription);
      await subscription.settle(first.deliveries.slice(0, 4));
      await assertNothingComes(subscription);
      await subscription.settle(first.deliveries.slice(4));
      const second = await kit.receive(subscription, 5);
      assert.deepEqual([...first.deliveries, ...second.deliveries].map(text), numbered(topic, 10).map(valueText));
    },
  },
  {
    name: 'what another subscription was given is nobody here, and moves nothing',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const [one, other] = [kit.harness.group(), kit.harness.group()];
      await kit.publish(numbered(topic, 10));
      const first = await kit.subscribe({ group: one, topics: [topic] });
      const second = await kit.subscribe({ group: other, topics: [topic] });
      const { deliveries } = await kit.receive(first);
      await kit.receive(second, 1);
      assert.equal(await second.settle(deliveries), 'stale');
      await second.close();
      const again = await kit.subscribe({ group: other, topics: [topic] });
      const all = await settleUntil(again, (settled) => settled.length >= 10);
      assertAllInKeyOrder(numbered(topic, 10), all);
    },
  },
  {
    name: 'each group gets every record',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 2 });
      const records = numbered(topic, 40, { keys: 8 });
      await kit.publish(records);
      for (let group = 0; group < 2; group += 1) {
        const subscription = await kit.subscribe({ topics: [topic] });
        assertAllInKeyOrder(records, await settleUntil(subscription, (settled) => settled.length >= 40));
      }
    },
  },
  {
    name: 'receiving waits as long as it was told to, ends early with its signal, and wakes for a record',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const subscription = await kit.subscribe({ topics: [topic] });
      const waited = await timed(subscription.receive({ maxRecords: 1, waitMs: quietMs }));
      assert.ok(waited >= quietMs - 5 && waited < quietMs + 1000, `waited ${waited} ms`);

      const stop = new AbortController();
      const stopped = subscription.receive({ maxRecords: 1, waitMs: 60_000, signal: stop.signal });
      stop.abort();
      assert.equal(await stopped, undefined);

      const woken = kit.receive(subscription);
      await kit.publish(numbered(topic, 1));
      const took = await timed(woken);
      assert.ok(took < 2000, `woke after ${took} ms`);
    },
  },
  {
    name: 'one lane is paused while the others go on',
    features: ['pause'],
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 2 });
      const subscription = await kit.subscribe({ topics: [topic] });
      await kit.publish(numbered(topic, 48, { keys: 16 }));
      const before = await settleUntil(subscription, (settled) => settled.length >= 48);
      const paused = before[0]!.lane;
      subscription.pause!(paused);
      await kit.publish(numbered(topic, 48, { keys: 16, from: 48 }));
      const ofPaused = before.filter(({ lane }) => lane.partition === paused.partition).length;
      const others = await settleUntil(subscription, (settled) => settled.length >= 48 - ofPaused);
      assert.ok(others.every(({ lane }) => lane.partition !== paused.partition));
      await assertNothingComes(subscription);
      subscription.resume!(paused);
      const late = await settleUntil(subscription, (settled) => settled.length >= ofPaused);
      assert.ok(late.every(({ lane }) => lane.partition === paused.partition));
      assertAllInKeyOrder(numbered(topic, 96, { keys: 16 }), [...before, ...others, ...late]);
    },
  },
  {
    name: 'a closed subscription says so, and closing a transport closes what it made',
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const transport = kit.transport();
      const subscription = await transport.subscribe({ group: kit.harness.group(), topics: [topic] });
      const publisher = transport.publisher();
      await kit.publish(numbered(topic, 1));
      const { deliveries } = await kit.receive(subscription);
      await transport.close();
      await assert.rejects(subscription.receive({ maxRecords: 1, waitMs: 10 }), { code: 'TP_CLOSED' });
      assert.equal(await subscription.settle(deliveries), 'stale');
      await assert.rejects(publisher.publish(numbered(topic, 1)), { code: 'TP_CLOSED' });
    },
  },
];

function valueText({ value }: { value: Uint8Array }): string {
  return Buffer.from(value).toString();
}
