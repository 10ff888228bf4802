import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { TwiceproofError } from '../errors.ts';
import { migrate } from '../migrations/migrate.ts';
import type { SourcedMessage } from '../source.ts';
import type { PublishOutcome } from '../transport.ts';
import { uuidv7 } from '../uuid.ts';
import { countParked, dropParked, parkedKeys, parkedMessages, releaseParked } from './parked.ts';
import { createPollSource } from './poll.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());

const source = createPollSource({ pool });
const signal = new AbortController().signal;
const topic: string[] = [];
/** These cannot be published as they are. */
const poison = new Set<string>();

beforeEach(async () => {
  topic.length = 0;
  poison.clear();
  await pool.query('DROP SCHEMA IF EXISTS twiceproof CASCADE');
  await migrate(pool);
});

const textOf = ({ payload }: { payload: Uint8Array }): string => Buffer.from(payload).toString();
const keyOf = (text: string): string => text.replace(/\d+$/, '');

async function append(...texts: string[]): Promise<void> {
  for (const text of texts) {
    await pool.query(
      `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload, headers)
       VALUES (0, 't', $1, $2, 'said', $3, '{"h":"1"}')`,
      [keyOf(text), uuidv7(), Buffer.from(text)],
    );
  }
}

/** As a transport does it: behind what is not taken, nothing of that key is. */
async function publish(messages: readonly SourcedMessage[]): Promise<PublishOutcome[]> {
  const blocked = new Set<string>();
  return messages.map((message) => {
    const text = textOf(message);
    if (blocked.has(message.aggregateId)) return { outcome: 'withheld' };
    if (!poison.has(text)) {
      topic.push(text);
      return { outcome: 'acknowledged' };
    }
    blocked.add(message.aggregateId);
    return { outcome: 'rejected', error: new TwiceproofError('TP_RECORD_TOO_LARGE', `${text} is too large`) };
  });
}

/** As a relay does it, until there is nothing more. */
async function relay(): Promise<void> {
  for (;;) {
    const batch = await source.next({ maxMessages: 10, waitMs: 0, signal });
    if (!batch) return;
    const outcomes = await publish(batch.messages);
    const parked = outcomes.flatMap((outcome, index) =>
      outcome.outcome === 'acknowledged' ? [] : [{ index, reason: outcome.outcome }],
    );
    await batch.advance({ done: batch.messages.length, parked });
  }
}

async function parkSome(): Promise<void> {
  poison.add('b2');
  await append('a1', 'b1', 'b2', 'b3', 'a2');
  await relay();
  await append('b4', 'a3', 'b5');
  await relay();
  assert.deepEqual(topic, ['a1', 'b1', 'a2', 'a3']);
}

test('what is parked is listed by key, with the first of each and how many wait behind it', async () => {
  await parkSome();
  const [key, ...others] = await parkedKeys(pool, 10);
  assert.equal(others.length, 0);
  assert.deepEqual([key!.aggregateId, key!.behind, key!.first.reason, key!.first.topic], ['b', 3, 'rejected', 't']);
  assert.ok(!('payload' in key!.first));
  assert.deepEqual(await countParked(pool), { keys: 1, messages: 4 });
  const messages = await parkedMessages(pool, { aggregateId: 'b', atMost: 3 });
  assert.deepEqual(messages.map(textOf), ['b2', 'b3', 'b4']);
  assert.deepEqual(messages[0]!.headers, { h: '1' });
});

test('a key is released in its order, in pages, and what comes while it is goes behind', async () => {
  await parkSome();
  poison.clear();
  let pages = 0;
  const released = await releaseParked(
    pool,
    async (messages) => {
      pages += 1;
      // Nobody else may publish anything of this shard meanwhile.
      assert.equal(await source.next({ maxMessages: 10, waitMs: 0, signal }), undefined);
      if (pages === 1) await append('b6');
      return publish(messages);
    },
    {
      aggregateId: 'b',
      page: 2,
      onProgress: () => {},
    },
  );
  assert.deepEqual(released, { outcome: 'released', messages: 4 });
  await relay();
  assert.deepEqual(topic.slice(4), ['b2', 'b3', 'b4', 'b5', 'b6']);
  assert.deepEqual(await countParked(pool), { keys: 0, messages: 0 });
});

test('between two pages the relay has its turn, and parks what is new behind the rest', async () => {
  await parkSome();
  poison.clear();
  await append('b6', 'a4');
  const relayed: Promise<void>[] = [];
  const released = await releaseParked(
    pool,
    async (messages) => {
      // It waits for nothing: it finds the shard held, or gets it after this page.
      relayed.push(relay());
      return publish(messages);
    },
    { aggregateId: 'b', page: 1 },
  );
  await Promise.all(relayed);
  await relay();
  assert.equal(released.outcome, 'released');
  assert.deepEqual(
    topic.filter((text) => keyOf(text) === 'b'),
    ['b1', 'b2', 'b3', 'b4', 'b5', 'b6'],
  );
});

test('what still cannot be published stays, and all behind it; what went before is gone', async () => {
  await parkSome();
  poison.clear();
  poison.add('b4');
  const released = await releaseParked(pool, publish, { aggregateId: 'b' });
  const [first] = await parkedMessages(pool, { aggregateId: 'b', atMost: 1 });
  assert.ok(released.outcome === 'rejected' && released.messages === 2 && released.id === first!.id);
  assert.match(released.reason, /b4 is too large/);
  assert.deepEqual((await parkedMessages(pool, { aggregateId: 'b', atMost: 9 })).map(textOf), ['b4', 'b5']);
  await append('b6');
  await relay();
  assert.deepEqual(topic.slice(4), ['b2', 'b3']);
});

test('when nobody knows whether it was published everything stays; when publishing breaks too', async () => {
  await parkSome();
  const unknown = new TwiceproofError('TP_DEADLINE', 'no answer');
  const waiting = await releaseParked(pool, async (all) => all.map(() => ({ outcome: 'unknown', error: unknown })), {
    aggregateId: 'b',
  });
  assert.ok(waiting.outcome === 'waiting' && waiting.messages === 0);
  const broken = async (): Promise<PublishOutcome[]> => Promise.reject(new Error('broken'));
  await assert.rejects(releaseParked(pool, broken, { aggregateId: 'b' }), /broken/);
  assert.deepEqual(await countParked(pool), { keys: 1, messages: 4 });
  assert.deepEqual(await releaseParked(pool, publish, { aggregateId: 'a' }), { outcome: 'nothing there' });
});

test('a shard that is held for too long is not waited for', async () => {
  await parkSome();
  await append('a9');
  const held = await source.next({ maxMessages: 10, waitMs: 0, signal });
  await assert.rejects(releaseParked(pool, publish, { aggregateId: 'b', lockWaitMs: 50 }), { code: '55P03' });
  await assert.rejects(dropParked(pool, { aggregateId: 'b', lockWaitMs: 50 }), { code: '55P03' });
  await held!.abandon();
  assert.deepEqual(await countParked(pool), { keys: 1, messages: 4 });
});

test('dropped: only the first of a key, or the whole key; then the key goes on', async () => {
  await parkSome();
  const [first, second] = await parkedMessages(pool, { aggregateId: 'b', atMost: 2 });
  assert.deepEqual(await dropParked(pool, { id: second!.id }), { outcome: 'not the first', first: first!.id });
  assert.deepEqual(await dropParked(pool, { id: uuidv7() }), { outcome: 'nothing there' });
  assert.deepEqual(await dropParked(pool, { id: first!.id.toUpperCase() }), { outcome: 'dropped', messages: 1 });
  assert.deepEqual((await parkedMessages(pool, { aggregateId: 'b', atMost: 9 })).map(textOf), ['b3', 'b4', 'b5']);
  assert.deepEqual(await dropParked(pool, { aggregateId: 'b' }), { outcome: 'dropped', messages: 3 });
  await append('b6');
  await relay();
  assert.deepEqual(topic.slice(4), ['b6']);
});
