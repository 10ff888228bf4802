import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { createOutbox } from '../outbox/append.ts';
import type { SourcedMessage } from '../source.ts';
import { createPollSource } from '../sources/poll.ts';
import { transaction } from '../transaction.ts';
import { republish } from './outbox-republish.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
await migrate(pool);

const outbox = createOutbox({ topics: ['t'] });
const signal = new AbortController().signal;
const source = createPollSource({ pool });

async function append(text: string): Promise<void> {
  const message = { topic: 't', aggregateId: 'a', type: 'said', payload: Buffer.from(text) };
  await transaction(pool, (tx) => outbox.append(tx, [message]));
}

/** What a relay would publish now, at once or not at all. */
async function relayed(): Promise<string[]> {
  const batch = await source.next({ maxMessages: 10, waitMs: 0, signal });
  const texts = textsOf(batch?.messages ?? []);
  await batch?.advance({ done: texts.length, parked: [] });
  return texts;
}

const textsOf = (messages: readonly SourcedMessage[]): string[] =>
  messages.map(({ payload }) => Buffer.from(payload).toString());

test('while a page is published again its shard is held: what comes next of its keys comes behind it', async () => {
  await append('a1');
  assert.deepEqual(await relayed(), ['a1']);
  const published: string[] = [];
  const done = await republish(
    pool,
    async (messages) => {
      await append('a2');
      published.push(...(await relayed()), ...textsOf(messages));
      return messages.map(() => ({ outcome: 'acknowledged' as const }));
    },
    { since: new Date(0) },
  );
  assert.deepEqual(done, { messages: 1, rejected: [] });
  published.push(...(await relayed()));
  assert.deepEqual(published, ['a1', 'a2']);
});
