import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { Delivery, OutgoingRecord, Publisher } from '../transport.ts';
import {
  assertAllInKeyOrder,
  countOutcomes,
  errorCodeOf,
  numbered,
  patience,
  settleUntil,
  text,
  timed,
  until,
  type TransportCase,
} from './transport-kit.ts';

const shortDeadlineMs = 3000;

export const faultCases: TransportCase[] = [
  {
    name: 'a broker dies and comes back while records flow: nothing acknowledged is missing, no key is out of order',
    hook: 'faults',
    async run(kit) {
      const faults = kit.harness.faults!;
      const topic = await kit.harness.createTopic({ partitions: 6 });
      const subscription = await kit.subscribe({ topics: [topic] });
      // Shorter than it takes to replace a dead leader, so that calls end without an answer.
      const publisher = kit.transport({ publishDeadlineMs: shortDeadlineMs }).publisher();
      const published: OutgoingRecord[] = [];
      let unacknowledged = 0;
      let flowing = true;
      const flow = async (): Promise<void> => {
        while (flowing) {
          const records = numbered(topic, 60, { keys: 30, from: published.length });
          unacknowledged += await insist(publisher, records);
          published.push(...records);
        }
      };
      const came: Delivery[] = [];
      const values = new Set<string>();
      const consume = async (): Promise<void> => {
        let inTime = patience('all that was published has come');
        while (flowing || values.size < published.length) {
          if (flowing) inTime = patience('all that was published has come');
          inTime();
          const batch = await subscription.receive({ maxRecords: 200, waitMs: 500 });
          if (!batch) continue;
          // The effect comes first; after it, `stale` only means that it may come again.
          came.push(...batch.deliveries);
          for (const delivery of batch.deliveries) values.add(text(delivery));
          await subscription.settle(batch.deliveries);
        }
      };
      const flows = Promise.all([flow(), consume()]);
      await until('records flow', () => values.size > 200);
      await faults.killBroker();
      const atKill = published.length;
      await until('records flow without it', () => published.length > atKill + 600);
      await faults.startBroker();
      const atStart = published.length;
      await until('records flow with it again', () => published.length > atStart + 600);
      flowing = false;
      await flows;
      assert.ok(unacknowledged > 0, 'the broker died in the middle of a batch');
      assertAllInKeyOrder(published, came);
      // The same from the log itself: what one group has settled could hide what another would miss.
      const all = await settleUntil(
        await kit.subscribe({ topics: [topic] }),
        (settled) => new Set(settled.map(text)).size >= published.length,
      );
      assertAllInKeyOrder(published, all);
    },
  },
  {
    name: 'a stuck publisher answers at its deadline and is as new: order is kept, nothing acknowledged is lost',
    hook: 'faults',
    async run(kit) {
      const faults = kit.harness.faults!;
      const topic = await kit.harness.createTopic({ partitions: 3 });
      const publisher = kit.transport({ publishDeadlineMs: shortDeadlineMs }).publisher();
      const records = numbered(topic, 300, { keys: 12 });
      assert.equal(await insist(publisher, records.slice(0, 100)), 0);
      await faults.freeze();
      const stuck = publisher.publish(records.slice(100, 200));
      const took = await timed(stuck);
      const outcomes = await stuck;
      await faults.thaw();
      assert.ok(took < shortDeadlineMs + 1000, `answered after ${took} ms`);
      assert.equal(countOutcomes(outcomes)['acknowledged'], undefined);
      assert.equal(errorCodeOf(outcomes[0]), 'TP_DEADLINE');
      await insist(publisher, records.slice(100));
      const subscription = await kit.subscribe({ topics: [topic] });
      const came = await settleUntil(subscription, (settled) => new Set(settled.map(text)).size >= records.length);
      assertAllInKeyOrder(records, came);
    },
  },
  {
    name: 'a subscription outlives brokers that do not answer for a while',
    hook: 'faults',
    async run(kit) {
      const faults = kit.harness.faults!;
      const topic = await kit.harness.createTopic({ partitions: 3 });
      const subscription = await kit.subscribe({ topics: [topic] });
      await kit.publish(numbered(topic, 30, { keys: 6 }));
      await settleUntil(subscription, (settled) => settled.length >= 30);
      await faults.freeze();
      const nothing = await timed(subscription.receive({ maxRecords: 10, waitMs: 8000 }));
      await faults.thaw();
      assert.ok(nothing > 7900, 'nothing came while it was frozen');
      await insist(kit.publisher(), numbered(topic, 30, { keys: 6, from: 30 }));
      const isNew = (delivery: Delivery): boolean => Number(text(delivery)) >= 30;
      // All of them: every lane has to come back.
      await settleUntil(subscription, (settled) => new Set(settled.filter(isNew).map(text)).size >= 30);
    },
  },
  {
    name: 'closing is bounded when the broker is gone',
    hook: 'faults',
    async run(kit) {
      const faults = kit.harness.faults!;
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const transport = kit.transport();
      const publisher = transport.publisher();
      await insist(publisher, numbered(topic, 1));
      const subscription = await transport.subscribe({ group: kit.harness.group(), topics: [topic] });
      const { deliveries } = await kit.receive(subscription);
      await faults.freeze();
      const publishing = publisher.publish(numbered(topic, 1));
      const settling = subscription.settle(deliveries);
      const took = await timed(transport.close());
      await faults.thaw();
      assert.ok(took < 10_000, `closed after ${took} ms`);
      assert.deepEqual(countOutcomes(await publishing), { unknown: 1 });
      assert.equal(await settling, 'stale');
    },
  },
];

/** As a relay does: what is not acknowledged is published again, in order, until it is. Answers how many those were. */
async function insist(publisher: Publisher, records: readonly OutgoingRecord[]): Promise<number> {
  const inTime = patience('all records are acknowledged');
  let open = records;
  let unacknowledged = 0;
  for (;;) {
    const outcomes = await publisher.publish(open);
    open = open.filter((_, i) => outcomes[i]!.outcome !== 'acknowledged');
    if (open.length === 0) return unacknowledged;
    unacknowledged += open.length;
    inTime();
    await delay(50);
  }
}
