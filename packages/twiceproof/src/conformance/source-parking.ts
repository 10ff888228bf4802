import assert from 'node:assert/strict';
import { append, assertInKeyOrder, assertNothingComes, hold, take, textsOf, type SourceCase } from './source-kit.ts';

export const parkingCases: SourceCase[] = [
  {
    name: 'what is parked is kept aside with its reason, and what comes of its key behind it; other keys go on',
    async run(kit) {
      const { source } = await kit.openSource();
      const [, bad] = await kit.write('a1', 'bad1', 'a2', 'c1');
      const batch = await hold(source);
      const index = batch.messages.findIndex(({ id }) => id === bad!.id);
      await batch.advance({ done: index + 1, parked: [{ index, reason: 'too large' }] });
      await kit.write('bad2', 'a3');
      await kit.write('bad3');
      const rest = await take(source, 4 - index);
      assertInKeyOrder([...batch.messages.slice(0, index), ...rest], ['a1', 'a2', 'c1', 'a3']);
      await assertNothingComes(source);
      const parked = await kit.outbox.parked();
      assert.deepEqual(textsOf(parked), ['bad1', 'bad2', 'bad3']);
      assert.equal(parked[0]!.id, bad!.id);
      assert.equal(parked[0]!.reason, 'too large');
    },
  },
  {
    name: 'several may be parked at once, and those behind them in the same batch',
    async run(kit) {
      const { source } = await kit.openSource();
      await kit.write('a1', 'b1', 'a2', 'b2', 'c1');
      const batch = await hold(source);
      const parked = batch.messages.flatMap(({ aggregateId }, index) =>
        aggregateId === 'c' ? [] : [{ index, reason: `${aggregateId} cannot be` }],
      );
      await batch.advance({ done: batch.messages.length, parked });
      await kit.write('a3', 'b3', 'c2');
      assert.deepEqual(textsOf(await take(source, 1)), ['c2']);
      assertInKeyOrder(await kit.outbox.parked(), ['a1', 'a2', 'a3', 'b1', 'b2', 'b3']);
    },
  },
  {
    name: 'a parked key keeps what is committed late and what stands in a backlog; nothing but that may come of it',
    async run(kit) {
      const { source } = await kit.openSource();
      const late = await kit.begin();
      await late.enter();
      await kit.write('bad1');
      const batch = await hold(source);
      await batch.advance({ done: 1, parked: [{ index: 0, reason: 'cannot be' }] });
      await append(late, 'bad2', 'a1');
      await late.commit();
      await kit.write('bad3', 'bad4', 'bad5', 'bad6', 'a2', 'bad7', 'a3');
      assert.deepEqual(textsOf(await take(source, 3, 2)), ['a1', 'a2', 'a3']);
      await assertNothingComes(source);
      assert.deepEqual(
        textsOf(await kit.outbox.parked()),
        [1, 2, 3, 4, 5, 6, 7].map((n) => `bad${n}`),
      );
    },
  },
  {
    name: 'nothing is parked by a batch that does not advance so far, and nothing twice',
    async run(kit) {
      const { source, cut } = await kit.openSource();
      await kit.write('bad1', 'a1');
      const first = await hold(source);
      await first.abandon();
      assert.deepEqual(await kit.outbox.parked(), []);
      const second = await hold(source);
      await cut();
      await assert.rejects(second.advance({ done: 1, parked: [{ index: 0, reason: 'cannot be' }] }));
      assert.deepEqual(await kit.outbox.parked(), []);
      const third = await hold(source);
      await third.advance({ done: 1, parked: [{ index: 0, reason: 'cannot be' }] });
      assert.deepEqual(textsOf(await take(source, 1)), ['a1']);
      await assertNothingComes(source);
      assert.deepEqual(textsOf(await kit.outbox.parked()), ['bad1']);
    },
  },
];
