import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Batch, Delivery, Position, Subscription, Transport } from 'twiceproof/transport';
import { createMemoryBroker } from 'twiceproof/transports/memory';
import { withDuplicates } from './duplicates.ts';

const topic = 'numbers';
const partitions = 3;
const text = (delivery: Delivery): string => Buffer.from(delivery.value).toString();
const positionOf = ({ position }: { position?: Position }): string => `${position!.partition}/${position!.offset}`;

/** Two batches at a time, as two workers have them. */
async function consume({ rate, seed, records }: { rate: number; seed: number; records: number }) {
  const broker = createMemoryBroker();
  broker.createTopic(topic, { partitions });
  const plain = broker.transport();
  const settled: string[] = [];
  const spied: Transport = {
    ...plain,
    subscribe: async (wanted) => {
      const subscription = await plain.subscribe(wanted);
      const settle: Subscription['settle'] = async (deliveries) => {
        settled.push(...deliveries.map(text));
        return subscription.settle(deliveries);
      };
      return { ...subscription, settle };
    },
  };
  let injected = 0;
  const transport = withDuplicates(spied, { rate, seed, onInjected: (count) => (injected += count) });
  const published = Array.from({ length: records }, (_, n) => ({
    topic,
    key: `key-${n % 12}`,
    value: Buffer.from(String(n)),
  }));
  await transport.publisher().publish(published);
  const subscription = await transport.subscribe({ group: 'g', topics: [topic] });
  const batches: Batch[] = [];
  /** At the index of each batch: what bears the same number was under way together. */
  const rounds: number[] = [];
  /** Pairs that were under way together and had an id in common. */
  let together = 0;
  for (;;) {
    const two = await Promise.all([next(subscription), next(subscription)]);
    const [one, other] = two;
    if (one && other) {
      const ids = new Set(one.deliveries.map(text));
      if (other.deliveries.some((each) => ids.has(text(each)))) together += 1;
    }
    const got = two.filter((batch) => batch !== undefined);
    if (got.length === 0) break;
    batches.push(...got);
    rounds.push(...got.map(() => rounds.length));
    for (const batch of got) assert.equal(await subscription.settle(batch.deliveries), 'settled');
  }
  await transport.close();
  return { batches, rounds, injected, together, settled };
}

async function next(subscription: Subscription): Promise<Batch | undefined> {
  return subscription.receive({ maxRecords: 10, waitMs: 20 });
}

test('a share of the messages comes again, at once, elsewhere and later, and everything is settled once', async () => {
  const records = 3_000;
  const { batches, injected, together } = await consume({ rate: 0.3, seed: 5, records });
  const all = batches.flatMap(({ deliveries }) => deliveries);
  assert.equal(all.length, records + injected);
  // Some of those that come later are still to come at the end.
  assert.ok(injected > 0.2 * records && injected <= 0.35 * records, String(injected));
  assert.equal(new Set(all.map(text)).size, records);
  assert.ok(together > 10, `${together} pairs of batches had a message in common`);

  const seen = new Map<string, number>();
  let [atOnce, elsewhere, later] = [0, 0, 0];
  for (const [n, { lane, deliveries }] of batches.entries()) {
    for (const delivery of deliveries) {
      const before = seen.get(text(delivery));
      if (before === n) atOnce += 1;
      else if (before !== undefined) later += 1;
      if (delivery.lane.partition !== lane.partition) elsewhere += 1;
      seen.set(text(delivery), before ?? n);
    }
  }
  for (const [name, count] of Object.entries({ atOnce, elsewhere, later })) assert.ok(count > 50, `${name}: ${count}`);
});

test('the last of a batch is its own, and what is its own is in its order', async () => {
  for (const rate of [0.5, 1]) {
    const { batches } = await consume({ rate, seed: 9, records: 600 });
    const ends = new Map<number, bigint>();
    for (const { lane, deliveries } of batches) {
      assert.equal(deliveries.at(-1)!.lane.partition, lane.partition);
      const own = deliveries.filter((each) => each.lane.partition === lane.partition);
      const begin = ends.get(lane.partition) ?? 0n;
      const fresh = [...new Set(own.map(({ position }) => position!.offset).filter((offset) => offset >= begin))];
      assert.deepEqual(
        fresh,
        fresh.map((_, n) => begin + BigInt(n)),
      );
      assert.equal(deliveries.at(-1)!.position!.offset, fresh.at(-1), 'the position is taken from the last');
      ends.set(lane.partition, fresh.at(-1)! + 1n);
    }
  }
});

test('elsewhere comes only what is the first of its key in its batch, while that is under way', async () => {
  const { batches, rounds } = await consume({ rate: 1, seed: 3, records: 600 });
  const home = new Map<string, { batch: number; isFirstOfKey: boolean }>();
  for (const [n, { lane, deliveries }] of batches.entries()) {
    const keys = new Set<string>();
    for (const each of deliveries.filter(({ lane: of }) => of.partition === lane.partition)) {
      const key = Buffer.from(each.key!).toString();
      if (home.has(positionOf(each))) continue;
      home.set(positionOf(each), { batch: n, isFirstOfKey: !keys.has(key) });
      keys.add(key);
    }
  }
  let beside = 0;
  for (const [n, { lane, deliveries }] of batches.entries()) {
    for (const each of deliveries.filter(({ lane: of }) => of.partition !== lane.partition)) {
      const { batch, isFirstOfKey } = home.get(positionOf(each))!;
      assert.ok(batch < n, `batch ${n} has a message of batch ${batch}, which came later`);
      // What is of an older round was settled by then.
      if (rounds[batch] !== rounds[n]) continue;
      assert.ok(isFirstOfKey);
      beside += 1;
    }
  }
  assert.ok(beside > 0);
});

test('the same seed gives the same deliveries', async () => {
  const run = async (seed: number): Promise<string[]> =>
    (await consume({ rate: 0.3, seed, records: 200 })).batches.map(({ deliveries }) => deliveries.map(text).join());
  assert.deepEqual(await run(4), await run(4));
  assert.notDeepEqual(await run(4), await run(5));
});

test('the broker has heard of each message once', async () => {
  const { settled } = await consume({ rate: 1, seed: 2, records: 100 });
  assert.equal(settled.length, 100);
  assert.equal(new Set(settled).size, 100);
});
