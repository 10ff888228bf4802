import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { SourcedMessage } from '../source.ts';
import {
  assertInKeyOrder,
  assertNothingComes,
  hold,
  numbered,
  patienceMs,
  quietMs,
  take,
  takeRest,
  textsOf,
  type SourceCase,
} from './source-kit.ts';

export const holdingCases: SourceCase[] = [
  {
    name: 'messages of a key that is held come to nobody else, be they old or new',
    shards: 2,
    async run(kit) {
      const [one, other] = [await kit.openSource(), await kit.openSource()];
      await kit.write('a1', 'a2', 'a3');
      const batch = await hold(one.source, 2);
      assert.deepEqual(textsOf(batch.messages), ['a1', 'a2']);
      await kit.write('a4');
      for (const { source } of [one, other]) await assertNothingComes(source);
      await batch.advance({ done: 2, parked: [] });
      assert.deepEqual(textsOf(await take(other.source, 2)), ['a3', 'a4']);
    },
  },
  {
    name: 'while the keys of one shard are held, those of the others go on, where that is declared',
    shards: 8,
    async run(kit) {
      const { source } = await kit.openSource();
      const texts = Array.from({ length: 40 }, (_, n) => `aggregate ${n} 1`);
      await kit.write(...texts);
      const batch = await hold(source, 1);
      const came = await takeRest(source);
      assert.equal(came.length > 0, kit.harness.holdsSeveral);
      await batch.advance({ done: 1, parked: [] });
      assertInKeyOrder([...batch.messages, ...came, ...(await takeRest(source))], texts);
    },
  },
  {
    name: 'what is abandoned comes again, as it was',
    async run(kit) {
      const { source } = await kit.openSource();
      await kit.write('a1', 'b1', 'a2');
      const batch = await hold(source);
      const first = batch.messages;
      await batch.abandon();
      assert.deepEqual(await take(source, first.length, first.length), first);
      await takeRest(source);
    },
  },
  {
    name: 'what comes to nothing again and again does not hold up what could be handed out beside it',
    shards: 8,
    async run(kit) {
      const { source } = await kit.openSource();
      const texts = Array.from({ length: 40 }, (_, n) => `aggregate ${n} 1`);
      await kit.write(...texts);
      const first = await hold(source, texts.length);
      const stuck = new Set(first.messages.map(({ aggregateId }) => aggregateId));
      assert.equal(stuck.size < texts.length, kit.harness.holdsSeveral);
      await first.abandon();
      const came: SourcedMessage[] = [];
      const signal = AbortSignal.timeout(patienceMs);
      const others = texts.filter((text) => !stuck.has(text.replace(/\d+$/, '')));
      // In the second round the one that is stuck has waited longer than all others.
      for (const round of [1, 2]) {
        while (came.length < round * others.length && !signal.aborted) {
          const batch = await source.next({ maxMessages: texts.length, waitMs: quietMs, signal });
          if (batch?.messages.some(({ aggregateId }) => stuck.has(aggregateId))) {
            await batch.abandon();
            // As a relay does, and longer than a source waits between two looks.
            await delay(quietMs);
          } else if (batch) {
            came.push(...batch.messages);
            await batch.advance({ done: batch.messages.length, parked: [] });
          }
        }
        assert.equal(came.length, round * others.length, `all the others came in round ${round}`);
        const next = others.map((text) => text.replace(/1$/, '2'));
        if (round === 1) await kit.write(...next);
        if (round === 1) texts.push(...next);
      }
      assertInKeyOrder([...came, ...(await take(source, stuck.size, stuck.size))], texts);
    },
  },
  {
    name: 'what is not done comes again, what is done does not',
    async run(kit) {
      const { source } = await kit.openSource();
      const texts = numbered('a', 1, 30);
      await kit.write(...texts);
      const done: SourcedMessage[] = [];
      // Of each batch another part: nothing, one, two, ... all.
      for (let n = 0; done.length < texts.length; n += 1) {
        const batch = await hold(source, 7);
        const part = Math.min(n % 8, batch.messages.length);
        done.push(...batch.messages.slice(0, part));
        await batch.advance({ done: part, parked: [] });
        if (n === 3) await kit.write('b1');
      }
      assert.deepEqual(textsOf(done.filter(({ aggregateId }) => aggregateId === 'a')).slice(0, 29), texts.slice(0, 29));
      assertInKeyOrder([...done, ...(await takeRest(source))], [...texts, 'b1']);
    },
  },
  {
    name: 'a batch that has ended can be ended no second time',
    async run(kit) {
      const { source } = await kit.openSource();
      for (const end of ['advance', 'abandon'] as const) {
        await kit.write('a1');
        const batch = await hold(source);
        const all = { done: batch.messages.length, parked: [] };
        await batch[end](all);
        await assert.rejects(batch.advance(all));
        await assert.rejects(batch.abandon());
        if (end === 'abandon') await take(source, 1);
        await assertNothingComes(source);
      }
    },
  },
  {
    name: 'when its holder is gone a batch comes again, and cannot be advanced by who held it',
    async run(kit) {
      const [one, other] = [await kit.openSource(), await kit.openSource()];
      await kit.write(...numbered('a', 1, 5));
      const batch = await hold(one.source, 3);
      await one.cut();
      const taken = await hold(other.source, 4);
      assert.deepEqual(textsOf(taken.messages), numbered('a', 1, 4));
      await assert.rejects(batch.advance({ done: 3, parked: [{ index: 0, reason: 'not by this one' }] }));
      await taken.abandon();
      assert.deepEqual(textsOf(await take(other.source, 5)), numbered('a', 1, 5));
      assert.deepEqual(await kit.outbox.parked(), []);
    },
  },
  {
    name: 'a holder that is gone can be abandoned, and its source goes on',
    async run(kit) {
      const { source, cut } = await kit.openSource();
      await kit.write('a1');
      const batch = await hold(source);
      await cut();
      await batch.abandon();
      const again = await hold(source);
      await cut();
      await assert.rejects(again.advance({ done: 1, parked: [] }));
      assert.deepEqual(textsOf(await take(source, 1)), ['a1']);
    },
  },
  {
    name: 'several sources share the work: each message comes once, in the order of its key',
    shards: 4,
    async run(kit) {
      const sources = await Promise.all([kit.openSource(), kit.openSource(), kit.openSource()]);
      const aggregates = Array.from({ length: 12 }, (_, n) => `aggregate ${n} `);
      const written: string[] = [];
      const came: SourcedMessage[] = [];
      const signal = AbortSignal.timeout(patienceMs);
      const read = async (n: number): Promise<void> => {
        const { source } = sources[n]!;
        while (came.length < 12 * 20 && !signal.aborted) {
          const batch = await source.next({ maxMessages: 3 + n, waitMs: quietMs, signal });
          came.push(...(batch?.messages ?? []));
          await batch?.advance({ done: batch.messages.length, parked: [] });
        }
      };
      const reading = Promise.all(sources.map(async (_, n) => read(n)));
      for (let version = 1; version <= 20; version += 1) {
        const texts = aggregates.map((aggregate) => `${aggregate}${version}`);
        await kit.write(...texts);
        written.push(...texts);
      }
      await reading;
      assertInKeyOrder(came, written);
    },
  },
];
