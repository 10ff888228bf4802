import assert from 'node:assert/strict';
import type { Message } from '../message.ts';
import type { Source, SourceBatch, SourcedMessage } from '../source.ts';
import type { SourceHarness, SourceUnderTest, WritingTransaction } from './source.ts';

/** One promise of the contract and how it is tried. */
export interface SourceCase {
  name: string;
  /** Of the outbox. Defaults to 1. */
  shards?: number;
  run(kit: SourceKit): Promise<void>;
}

/** For what must come. */
export const patienceMs = 10_000;
/** How long to wait for what must not come. */
export const quietMs = 150;

const never = new AbortController().signal;

export type SourceKit = Awaited<ReturnType<typeof createKit>>;

/**
 * What a case works with; all that it opened is closed at its end. A message is written as its text: `a1` is the first of
 * aggregate `a`.
 */
export async function createKit(harness: SourceHarness, shards: number) {
  const outbox = await harness.createOutbox({ shards });
  const opened: SourceUnderTest[] = [];
  const open: WritingTransaction[] = [];
  const held: SourceBatch[] = [];

  async function begin(): Promise<WritingTransaction> {
    const tx = await outbox.begin();
    open.push(tx);
    return tx;
  }

  return {
    harness,
    outbox,
    begin,
    async openSource(): Promise<SourceUnderTest> {
      const made = await outbox.openSource();
      opened.push(made);
      return { ...made, source: remembering(made.source, held) };
    },
    /** In one transaction that is committed when this resolves. */
    async write(...texts: string[]): Promise<SourcedMessage[]> {
      const tx = await begin();
      const stored = await append(tx, ...texts);
      await tx.commit();
      return stored;
    },
    async [Symbol.asyncDispose](): Promise<void> {
      // A case that failed may have left a batch behind; any other has ended.
      await Promise.all(held.map(async (batch) => batch.abandon().catch(() => {})));
      await Promise.all(open.map(async (tx) => tx.rollback()));
      await Promise.all(opened.map(async ({ close }) => close()));
      await outbox.close();
    },
  };
}

function remembering(source: Source, held: SourceBatch[]): Source {
  return {
    name: source.name,
    check: async () => source.check(),
    close: async () => source.close(),
    async next(options) {
      const batch = await source.next(options);
      if (batch) held.push(batch);
      return batch;
    },
  };
}

/** Locks the aggregates before it appends, as who wants order has to. */
export async function append(tx: WritingTransaction, ...texts: string[]): Promise<SourcedMessage[]> {
  for (const aggregateId of [...new Set(texts.map(aggregateOf))].toSorted()) await tx.change(aggregateId);
  return tx.append(texts.map(said));
}

function said(text: string): Message {
  return { topic: 'said', aggregateId: aggregateOf(text), type: 'said', payload: Buffer.from(text) };
}

function aggregateOf(text: string): string {
  return text.replace(/\d+$/, '');
}

export function numbered(aggregate: string, from: number, to: number): string[] {
  return Array.from({ length: to - from + 1 }, (_, n) => `${aggregate}${from + n}`);
}

/** A batch that must come. */
export async function hold(source: Source, maxMessages = 100): Promise<SourceBatch> {
  const batch = await source.next({ maxMessages, waitMs: patienceMs, signal: never });
  assert.ok(batch, 'a batch must come');
  assert.ok(batch.messages.length > 0, 'a batch is not empty');
  assert.ok(batch.messages.length <= maxMessages, `${batch.messages.length} are more than ${maxMessages}`);
  return batch;
}

/** Reads and advances until so many messages have come. */
export async function take(source: Source, count: number, maxMessages = 100): Promise<SourcedMessage[]> {
  const came: SourcedMessage[] = [];
  while (came.length < count) {
    const batch = await hold(source, Math.min(maxMessages, count - came.length));
    came.push(...batch.messages);
    await batch.advance({ done: batch.messages.length, parked: [] });
  }
  return came;
}

/** What comes until nothing does any more. A batch that is held elsewhere does not come. */
export async function takeRest(source: Source, maxMessages = 100): Promise<SourcedMessage[]> {
  const came: SourcedMessage[] = [];
  for (;;) {
    const batch = await source.next({ maxMessages, waitMs: quietMs, signal: never });
    if (!batch) return came;
    came.push(...batch.messages);
    await batch.advance({ done: batch.messages.length, parked: [] });
  }
}

export async function assertNothingComes(source: Source): Promise<void> {
  const batch = await source.next({ maxMessages: 100, waitMs: quietMs, signal: never });
  const texts = textsOf(batch?.messages ?? []);
  await batch?.abandon();
  assert.deepEqual(texts, []);
}

export function textsOf(messages: readonly { payload: Uint8Array }[]): string[] {
  return messages.map(({ payload }) => Buffer.from(payload).toString());
}

/** All of them, each once, and those of one aggregate in this order. Between aggregates there is none. */
export function assertInKeyOrder(came: readonly { payload: Uint8Array }[], expected: readonly string[]): void {
  const byKey = (texts: readonly string[]): [string, string[]][] =>
    [...Map.groupBy(texts, aggregateOf)].toSorted(([a], [b]) => (a < b ? -1 : 1));
  assert.deepEqual(byKey(textsOf(came)), byKey(expected));
}
