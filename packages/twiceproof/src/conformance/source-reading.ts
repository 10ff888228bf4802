import assert from 'node:assert/strict';
import type { Message } from '../message.ts';
import {
  append,
  assertInKeyOrder,
  assertNothingComes,
  hold,
  numbered,
  patienceMs,
  quietMs,
  take,
  textsOf,
  type SourceCase,
} from './source-kit.ts';

export const readingCases: SourceCase[] = [
  {
    name: 'what is committed comes once, in the order of each key, in batches that are not larger than asked for',
    async run(kit) {
      const { source } = await kit.openSource();
      await source.check();
      const written = ['a1', 'b1', 'a2', 'c1', 'b2', 'a3', 'a4', 'c2', 'b3', 'c3'];
      for (const maxMessages of [1, 3, 10, 1000]) {
        await kit.write(...written.slice(0, 5));
        await kit.write(...written.slice(5));
        assertInKeyOrder(await take(source, written.length, maxMessages), written);
        await assertNothingComes(source);
      }
    },
  },
  {
    name: 'nothing comes of a transaction before it is committed, or of one that is rolled back',
    async run(kit) {
      const { source } = await kit.openSource();
      const [open, aborted] = [await kit.begin(), await kit.begin()];
      await append(open, 'a1');
      await append(aborted, 'b1', 'b2');
      await assertNothingComes(source);
      await aborted.rollback();
      await assertNothingComes(source);
      await kit.write('c1');
      assert.deepEqual(textsOf(await take(source, 1)), ['c1']);
      await open.commit();
      assert.deepEqual(textsOf(await take(source, 1)), ['a1']);
      await assertNothingComes(source);
    },
  },
  {
    name: 'what was rolled back to a savepoint does not come, the rest of its transaction does',
    async run(kit) {
      const { source } = await kit.openSource();
      const tx = await kit.begin();
      await append(tx, 'a1');
      await tx.savepoint();
      await append(tx, 'a2', 'b1');
      await tx.rollbackToSavepoint();
      await tx.savepoint();
      await append(tx, 'a3');
      await tx.commit();
      assert.deepEqual(textsOf(await take(source, 2)), ['a1', 'a3']);
      await assertNothingComes(source);
    },
  },
  {
    name: 'a transaction that stays open holds nobody up, and comes when it is committed, however late',
    async run(kit) {
      const { source } = await kit.openSource();
      const slow = await kit.begin();
      await append(slow, 'slow1');
      for (const round of [1, 2, 3]) {
        const other = await kit.begin();
        await append(other, `b${round}`);
        await kit.write(`a${round}`);
        assert.deepEqual(textsOf(await take(source, 1)), [`a${round}`]);
        await other.commit();
        assert.deepEqual(textsOf(await take(source, 1)), [`b${round}`]);
        await assertNothingComes(source);
      }
      await slow.commit();
      assert.deepEqual(textsOf(await take(source, 1)), ['slow1']);
      await assertNothingComes(source);
    },
  },
  {
    name: 'order within a key: also where the one that changes it later has begun first',
    async run(kit) {
      const { source } = await kit.openSource();
      for (const isReadBetween of [false, true]) {
        const early = await kit.begin();
        await early.enter();
        await kit.write('a1', 'b1');
        const came = isReadBetween ? await take(source, 2) : [];
        await append(early, 'a2');
        await kit.write('b2');
        await early.commit();
        await kit.write('a3', 'b3');
        came.push(...(await take(source, 6 - came.length)));
        assertInKeyOrder(came, ['a1', 'a2', 'a3', 'b1', 'b2', 'b3']);
      }
    },
  },
  {
    name: 'order within a key in a backlog of many batches, of transactions that were open side by side',
    async run(kit) {
      const { source } = await kit.openSource();
      for (let n = 1; n <= 15; n += 2) {
        const early = await kit.begin();
        await early.enter();
        await kit.write(`a${n}`, `b${n}`);
        await append(early, `a${n + 1}`, `b${n + 1}`);
        await early.commit();
      }
      assertInKeyOrder(await take(source, 32, 5), [...numbered('a', 1, 16), ...numbered('b', 1, 16)]);
      await assertNothingComes(source);
    },
  },
  {
    name: 'a backlog of many batches comes whole, with what is committed meanwhile behind it',
    async run(kit) {
      const { source } = await kit.openSource();
      const late = await kit.begin();
      await append(late, 'late1');
      await kit.write(...numbered('a', 1, 60), ...numbered('b', 1, 37));
      const came = await take(source, 15, 5);
      await late.commit();
      await kit.write('a61', 'b38');
      came.push(...(await take(source, 85, 5)));
      assertInKeyOrder(came, [...numbered('a', 1, 61), ...numbered('b', 1, 38), 'late1']);
      await assertNothingComes(source);
    },
  },
  {
    name: 'backlogs of every size come whole, and what is committed behind them too',
    async run(kit) {
      const { source } = await kit.openSource();
      for (let size = 1; size <= 24; size += 1) {
        await kit.write(...numbered('a', 1, size));
        const came = await take(source, Math.min(size, 3), 3);
        await kit.write(`a${size + 1}`);
        came.push(...(await take(source, size + 1 - came.length, 3)));
        assert.deepEqual(textsOf(came), numbered('a', 1, size + 1));
      }
      await assertNothingComes(source);
    },
  },
  {
    name: 'messages come as they were stored: ids, topics, types, payloads and headers byte for byte, and their time',
    async run(kit) {
      const { source } = await kit.openSource();
      const tx = await kit.begin();
      const stored = await tx.append(unusual);
      await tx.commit();
      const came = await take(source, stored.length);
      const comparable = ({ payload, ...rest }: (typeof came)[number]) => ({ ...rest, payload: [...payload] });
      assert.deepEqual(came.map(comparable), stored.map(comparable));
      for (const { createdAt } of came) assert.ok(Math.abs(createdAt.getTime() - Date.now()) < 3_600_000);
    },
  },
  {
    name: 'every shard is read',
    shards: 4,
    async run(kit) {
      const { source } = await kit.openSource();
      const aggregates = Array.from({ length: 24 }, (_, n) => `aggregate ${n} `);
      const written = [1, 2, 3].map((version) => aggregates.map((aggregate) => `${aggregate}${version}`));
      for (const texts of written) await kit.write(...texts);
      assertInKeyOrder(await take(source, 72, 5), written.flat());
      await assertNothingComes(source);
    },
  },
  {
    name: 'it waits for as long as it is told, and no longer than until something comes',
    async run(kit) {
      const { source } = await kit.openSource();
      const began = performance.now();
      const signal = AbortSignal.timeout(patienceMs);
      assert.equal(await source.next({ maxMessages: 10, waitMs: quietMs, signal }), undefined);
      // A timer may come a little early by this clock.
      assert.ok(performance.now() - began > quietMs - 20, 'it has waited');
      assert.equal(signal.aborted, false);
      const waiting = hold(source);
      await kit.write('a1');
      const batch = await waiting;
      assert.deepEqual(textsOf(batch.messages), ['a1']);
      await batch.advance({ done: 1, parked: [] });
    },
  },
  {
    name: 'an abort ends the waiting, and nothing comes after it',
    async run(kit) {
      const { source } = await kit.openSource();
      const stop = new AbortController();
      const waiting = source.next({ maxMessages: 10, waitMs: 1_000 * patienceMs, signal: stop.signal });
      await assertNothingComes(source);
      stop.abort();
      assert.equal(await waiting, undefined);
      await kit.write('a1');
      assert.equal(await source.next({ maxMessages: 10, waitMs: patienceMs, signal: stop.signal }), undefined);
      assert.deepEqual(textsOf(await take(source, 1)), ['a1']);
    },
  },
];

const everyByte = Uint8Array.from({ length: 256 }, (_, n) => n);

const unusual: Message[] = [
  { topic: 't', aggregateId: 'plain', type: 'x', payload: new Uint8Array(0) },
  { topic: 't', aggregateId: 'empty', type: 'x', payload: Buffer.from('{"a": 1, "a": 2}'), headers: {} },
  { topic: 't.u-v_w', aggregateId: '\u0001 "\\\' äöü 日本語 🚀\uffff,{}NULL', type: 'ü 🚀', payload: everyByte },
  {
    topic: 't',
    aggregateId: 'headers',
    type: 'x',
    payload: Buffer.from('\\x00'),
    headers: { traceparent: '00-1-2-01', '': 'no name', ünï: '日本 🚀\u0007"\\', ['__proto__']: 'taken', empty: '' },
  },
];
