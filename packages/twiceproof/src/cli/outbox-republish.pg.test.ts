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

test('what is published together is bounded by its count and by its bytes, and nothing is left out', async () => {
  const texts = ['1', '22', '333', '4', '5', '6', 'x'.repeat(50), '7'];
  for (const text of texts) await append(text);
  await relayed();
  const pages: string[][] = [];
  const publish = async (messages: readonly SourcedMessage[]) => {
    pages.push(textsOf(messages));
    return messages.map(() => ({ outcome: 'acknowledged' as const }));
  };
  await republish(pool, publish, { since: new Date(0), page: 3, pageBytes: 5 });
  const [first, ...others] = [['a1', 'a2', '1'], ['22', '333'], ['4', '5', '6'], ['x'.repeat(50)], ['7']];
  assert.deepEqual(pages, [first, ...others]);
});
