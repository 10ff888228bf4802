import assert from 'node:assert/strict';
import type { TwiceproofError } from '../errors.ts';
import type { AssignedLane, Delivery, Lane, Subscription } from '../transport.ts';
import {
  assertAllInKeyOrder,
  assertNothingComes,
  numbered,
  patience,
  settleUntil,
  text,
  until,
  type TransportCase,
  type TransportKit,
} from './transport-kit.ts';

export const groupCases: TransportCase[] = [
  {
    name: 'a member that joins takes lanes: their batches are aborted and stale, and nothing is lost',
    features: ['assignment'],
    async run(kit) {
      const { topic, group } = await filledTopic(kit);
      const revoked: { lanes: readonly Lane[]; aborted: boolean }[] = [];
      const first = await watchedMember(kit, group, topic, {
        onRevoked: (lanes) => revoked.push({ lanes, aborted: batch.signal.aborted }),
      });
      const batch = await kit.receive(first.subscription);
      assert.equal(batch.signal.aborted, false);
      const second = await watchedMember(kit, group, topic);
      await until('the first member has lost its batch', () => revoked.length > 0);
      assert.ok(batch.signal.aborted, 'the signal is aborted');
      assert.ok(revoked[0]!.aborted, 'it is aborted before onRevoked is called');
      assert.deepEqual(new Set(revoked[0]!.lanes.map(({ partition }) => partition)), new Set([0, 1, 2, 3]));
      assert.equal(await first.subscription.settle(batch.deliveries), 'stale');
      await until('both have lanes', () => first.lanes().length === 2 && second.lanes().length === 2);
      assert.deepEqual(new Set([...first.lanes(), ...second.lanes()]), new Set([0, 1, 2, 3]));
      await settleTogether([first.subscription, second.subscription], topic);
    },
  },
  {
    name: 'a member that leaves gives back what it had not settled',
    features: ['assignment'],
    async run(kit) {
      const { topic, group } = await filledTopic(kit);
      const first = await watchedMember(kit, group, topic);
      const second = await watchedMember(kit, group, topic);
      await until('both have lanes', () => first.lanes().length === 2 && second.lanes().length === 2);
      const kept = await kit.receive(second.subscription);
      await second.subscription.close();
      assert.ok(kept.signal.aborted, 'the signal is aborted');
      assert.equal(await second.subscription.settle(kept.deliveries), 'stale');
      await settleTogether([first.subscription], topic);
    },
  },
  {
    name: 'a member that dies without closing is replaced, and what it held comes again',
    features: ['assignment'],
    hook: 'doomedMember',
    async run(kit) {
      const { topic, group } = await filledTopic(kit);
      const doomed = await kit.harness.doomedMember!({ group, topic });
      const joining = watchedMember(kit, group, topic);
      await doomed.kill();
      const { subscription, lanes } = await joining;
      await until('all lanes have come over', () => lanes().length === 4);
      await settleTogether([subscription], topic);
    },
  },
  {
    name: 'members that come and go while records flow lose and skip nothing',
    features: ['assignment'],
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 4 });
      const group = kit.harness.group();
      const settled: Delivery[] = [];
      const values = new Set<string>();
      let published = 0;
      let visiting = true;
      /** Settles until it is enough for this member, and answers how many it was. */
      const work = async (member: Subscription, enough: (mine: number) => boolean): Promise<void> => {
        const inTime = patience('enough records have come');
        let mine = 0;
        while (!enough(mine)) {
          inTime();
          const batch = await member.receive({ maxRecords: 20, waitMs: 100 });
          if (!batch || (await member.settle(batch.deliveries)) === 'stale') continue;
          mine += batch.deliveries.length;
          settled.push(...batch.deliveries);
          for (const delivery of batch.deliveries) values.add(text(delivery));
        }
        await member.close();
      };
      const visits = async (): Promise<void> => {
        for (let guest = 0; guest < 3; guest += 1) {
          await work(await kit.subscribe({ group, topics: [topic] }), (mine) => mine >= 40);
        }
        visiting = false;
      };
      const flow = async (): Promise<void> => {
        while (visiting) {
          await kit.publish(numbered(topic, 96, { keys: 16, from: published }));
          published += 96;
          await until('the members keep up', () => !visiting || values.size > published - 400);
        }
      };
      const stayer = await kit.subscribe({ group, topics: [topic] });
      const staying = work(stayer, () => !visiting && values.size >= published);
      await Promise.all([flow(), visits(), staying]);
      assertAllInKeyOrder(numbered(topic, published, { keys: 16 }), settled);
    },
  },
  {
    name: 'we choose where a lane starts, and are told what we need for it',
    features: ['assignment', 'seek', 'positions'],
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      const group = kit.harness.group();
      await kit.publish(numbered(topic, 10));
      const first = await kit.subscribe({ group, topics: [topic] });
      await settleUntil(first, (settled) => settled.length >= 5, 5);
      await first.close();

      let told: readonly AssignedLane[] = [];
      const second = await kit.subscribe({
        group,
        topics: [topic],
        onAssigned: async (lanes) => {
          told = lanes;
          return [{ topic, partition: 0, offset: 2n }];
        },
      });
      assert.ok(told[0]!.topicId.length > 0);
      const { topicId, ...rest } = told[0]!;
      assert.deepEqual(rest, { topic, partition: 0, committed: 5n, earliest: 0n, end: 10n });
      const batch = await kit.receive(second);
      assert.equal(text(batch.deliveries[0]!), '2');
      await second.close();

      const third = await kit.subscribe({ group, topics: [topic], onAssigned: async () => [] });
      assert.equal(text((await kit.receive(third)).deliveries[0]!), '5');
    },
  },
  {
    name: 'a group that is new to a full topic starts at the earliest record',
    features: ['assignment', 'seek'],
    async run(kit) {
      const { topic } = await filledTopic(kit);
      let told: readonly AssignedLane[] = [];
      const subscription = await kit.subscribe({
        topics: [topic],
        onAssigned: async (lanes) => {
          told = lanes;
          return [];
        },
      });
      assert.deepEqual(
        told.map(({ committed }) => committed),
        [undefined, undefined, undefined, undefined],
      );
      await settleTogether([subscription], topic);
    },
  },
  {
    name: 'a position outside the log becomes the earliest, with an alarm, and never the latest',
    features: ['assignment', 'seek', 'positions'],
    async run(kit) {
      const topic = await kit.harness.createTopic({ partitions: 1 });
      await kit.publish(numbered(topic, 10));
      const troubles: TwiceproofError[] = [];
      const subscription = await kit.subscribe({
        topics: [topic],
        onAssigned: async () => [{ topic, partition: 0, offset: 1000n }],
        onTrouble: (error) => troubles.push(error),
      });
      const came = await settleUntil(subscription, (settled) => settled.length >= 10);
      assert.equal(text(came[0]!), '0');
      assert.deepEqual(
        troubles.map(({ code }) => code),
        ['TP_POSITION_LOST'],
      );
    },
  },
  {
    name: 'when we cannot say where a lane starts, nothing is handed out until we can',
    features: ['assignment', 'seek'],
    async run(kit) {
      const { topic, group } = await filledTopic(kit);
      const failing = async (): Promise<never> => {
        throw new Error('the database is away');
      };
      await assert.rejects(kit.subscribe({ topics: [topic], onAssigned: failing }), { code: 'TP_ASSIGNMENT_FAILED' });

      const troubles: string[] = [];
      let calls = 0;
      const first = await kit.subscribe({
        group,
        topics: [topic],
        onAssigned: async () => ((calls += 1) === 2 ? await failing() : []),
        onTrouble: ({ code }) => troubles.push(code),
      });
      const guest = await kit.subscribe({ group, topics: [topic] });
      await until('the second assignment has failed', () => troubles.includes('TP_ASSIGNMENT_FAILED'));
      await settleTogether([first, guest], topic);
      assert.ok(calls >= 3, 'it was asked again');
    },
  },
];

const filled = 200;

async function filledTopic(kit: TransportKit): Promise<{ topic: string; group: string }> {
  const topic = await kit.harness.createTopic({ partitions: 4 });
  await kit.publish(numbered(topic, filled, { keys: 32 }));
  return { topic, group: kit.harness.group() };
}

/** A member that knows which partitions it has. */
async function watchedMember(
  kit: TransportKit,
  group: string,
  topic: string,
  hooks: { onRevoked?(lanes: readonly Lane[]): void } = {},
) {
  let lanes: number[] = [];
  const subscription = await kit.subscribe({
    group,
    topics: [topic],
    onAssigned: async (assigned) => {
      lanes = assigned.map(({ partition }) => partition);
      return [];
    },
    onRevoked: async (gone) => {
      lanes = [];
      hooks.onRevoked?.(gone);
    },
  });
  return { subscription, lanes: () => lanes };
}

/** The members together settle every record of a filled topic, in key order; then there is nothing left. */
async function settleTogether(members: readonly Subscription[], topic: string): Promise<void> {
  const settled: Delivery[] = [];
  const values = new Set<string>();
  const allCame = (): boolean => values.size >= filled;
  const inTime = patience('all records have come');
  const work = async (member: Subscription): Promise<void> => {
    while (!allCame()) {
      inTime();
      const batch = await member.receive({ maxRecords: 30, waitMs: 100 });
      if (!batch || (await member.settle(batch.deliveries)) === 'stale') continue;
      settled.push(...batch.deliveries);
      for (const delivery of batch.deliveries) values.add(text(delivery));
    }
  };
  await Promise.all(members.map(work));
  assertAllInKeyOrder(numbered(topic, filled, { keys: 32 }), settled);
  for (const member of members) await assertNothingComes(member);
}
