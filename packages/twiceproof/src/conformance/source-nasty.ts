/**
 * Writers and readers that do what hurts, drawn from a seed, and the judge of what the readers were given. It is the same
 * for every source: whoever reads the outbox must hand out what was committed, and nothing else, each key in its order.
 */
import assert from 'node:assert/strict';
import { setImmediate as turn, setTimeout as delay } from 'node:timers/promises';
import type { MessageId } from '../message.ts';
import type { SourceBatch, SourcedMessage } from '../source.ts';
import type { OutboxUnderTest, SourceHarness, SourceUnderTest, WritingTransaction } from './source.ts';

export interface NastyOptions {
  seed: number;
  /** How many messages are to be committed, at least. */
  messages: number;
  shards: number;
  sources: number;
  /** Defaults to 12. */
  writers?: number;
  /** How many the writers fight for. Defaults to 20. */
  aggregates?: number;
  /** How long a transaction stays open beside the others, at least. Defaults to 0: until half of them are done. */
  openForMs?: number;
}

/** From 0 to below, not including it. The same seed gives the same numbers. */
type Pick = (below: number) => number;

interface World {
  outbox: OutboxUnderTest;
  options: NastyOptions;
  committed: Map<MessageId, SourcedMessage>;
  /** As they were published, and again published: in the order in which it happened. */
  appeared: SourcedMessage[];
  advanced: Set<MessageId>;
  ended: AbortController;
}

/** For the transaction that stays open while the others go on. */
const slowAggregate = 'slow';
/** Nothing was advanced for so long: nothing more will be. */
const stalledMs = 15_000;

/** Rejects with what was lost, invented, repeated or out of order. */
export async function tryNastily(harness: SourceHarness, options: NastyOptions): Promise<void> {
  const outbox = await harness.createOutbox(options);
  const ended = new AbortController();
  const world: World = { outbox, options, committed: new Map(), appeared: [], advanced: new Set(), ended };
  try {
    const reading = Promise.all(upTo(options.sources).map(async (n) => readOn(world, random(options.seed * 1000 + n))));
    reading.catch(() => ended.abort());
    const writers = upTo(options.writers ?? 12).map(async (n) => writeOn(world, random(-options.seed * 1000 - n)));
    const writing = await Promise.allSettled([stayOpen(world), ...writers]);
    await untilAdvanced(world, () => world.committed.size);
    ended.abort();
    await reading;
    judge(world);
    for (const written of writing) if (written.status === 'rejected') throw written.reason;
  } finally {
    ended.abort();
    await outbox.close();
  }
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

async function writeOn(world: World, pick: Pick): Promise<void> {
  while (world.committed.size < world.options.messages && !world.ended.signal.aborted) await writeOnce(world, pick);
}

/**
 * One transaction: perhaps its id is drawn long before it locks anything, perhaps it takes its time, perhaps a part of it
 * is rolled back, or all. Aggregates are locked in order, so that nobody waits for each other.
 */
async function writeOnce(world: World, pick: Pick): Promise<void> {
  const { aggregates: hot = 20 } = world.options;
  const tx = await world.outbox.begin();
  const kept: SourcedMessage[] = [];
  if (pick(3) === 0) {
    await tx.enter();
    await delay(pick(20));
  }
  const aggregates = new Set(upTo(1 + pick(4)).map(() => `hot ${String(pick(hot)).padStart(4, '0')}`));
  for (const aggregate of [...aggregates].toSorted()) {
    const isKept = pick(5) > 0;
    if (!isKept) await tx.savepoint();
    const appended = await changeAndAppend(tx, aggregate, 1 + pick(3));
    if (isKept) kept.push(...appended);
    else await tx.rollbackToSavepoint();
    if (pick(6) === 0) await delay(pick(40));
  }
  if (pick(6) === 0) return tx.rollback();
  await tx.commit();
  for (const message of kept) world.committed.set(message.id, message);
}

/**
 * A transaction that began first and is committed when half of all others are done, and perhaps much later: it must not
 * stall them. All that was committed until then is done before it ends.
 */
async function stayOpen(world: World): Promise<void> {
  const { messages, openForMs = 0 } = world.options;
  const tx = await world.outbox.begin();
  await tx.enter();
  const openedAt = performance.now();
  const appended = await changeAndAppend(tx, slowAggregate, 5);
  await untilAdvanced(world, () => messages / 2);
  while (performance.now() - openedAt < openForMs && !world.ended.signal.aborted) await delay(10);
  const others = Math.max(messages / 2, world.committed.size);
  await untilAdvanced(world, () => others);
  const advanced = world.advanced.size;
  await tx.commit();
  for (const message of appended) world.committed.set(message.id, message);
  assert.ok(
    advanced >= others,
    `a transaction that stayed open held up the others: ${advanced} of ${others} were done`,
  );
}

/** The version is drawn under the lock of the aggregate, and the messages are appended after that. */
async function changeAndAppend(tx: WritingTransaction, aggregateId: string, count: number): Promise<SourcedMessage[]> {
  const version = await tx.change(aggregateId);
  return tx.append(
    upTo(count).map((part) => ({
      topic: 'changes',
      aggregateId,
      type: 'changed',
      payload: Buffer.from(`${version}.${part}`),
    })),
  );
}

async function readOn(world: World, pick: Pick): Promise<void> {
  let opened = await world.outbox.openSource();
  try {
    while (!world.ended.signal.aborted) {
      const { signal } = world.ended;
      const batch = await opened.source.next({ maxMessages: 1 + pick(40), waitMs: 100, signal });
      if (!batch) continue;
      const fate = await publishSome(world, pick, opened, batch).catch(async (error: unknown) => {
        await batch.abandon().catch(() => {});
        throw error;
      });
      if (fate === 'lives') continue;
      await opened.close();
      opened = await world.outbox.openSource();
    }
  } finally {
    await opened.close();
  }
}

/** Publishes a batch, or a part of it; then advances by that or less, gives all of it back, or dies. */
async function publishSome(
  { appeared, advanced }: World,
  pick: Pick,
  opened: SourceUnderTest,
  batch: SourceBatch,
): Promise<'lives' | 'died'> {
  const { messages } = batch;
  const published = pick(4) === 0 ? pick(messages.length + 1) : messages.length;
  for (const message of messages.slice(0, published)) {
    assert.ok(!advanced.has(message.id), `${name(message)} came again after it was done`);
    if (pick(4) === 0) await turn();
    appeared.push(message);
  }
  const done = pick(4) === 0 ? pick(published + 1) : published;
  const fate = pick(12);
  if (fate === 0) {
    await batch.abandon();
  } else if (fate === 1) {
    await opened.cut();
    await assert.rejects(batch.advance({ done, parked: [] }), 'a reader that is dead has advanced');
    return 'died';
  } else {
    await batch.advance({ done, parked: [] });
    for (const { id } of messages.slice(0, done)) advanced.add(id);
  }
  return 'lives';
}

/** Until so many are done, or nothing more happens. */
async function untilAdvanced({ advanced, ended }: World, count: () => number): Promise<void> {
  let seen = advanced.size;
  let seenAt = performance.now();
  while (advanced.size < count() && performance.now() - seenAt < stalledMs && !ended.signal.aborted) {
    await delay(10);
    if (advanced.size === seen) continue;
    seen = advanced.size;
    seenAt = performance.now();
  }
}

function judge({ committed, appeared, advanced }: World): void {
  const ghosts = appeared.filter(({ id }) => !committed.has(id));
  assert.deepEqual(ghosts.map(name), [], 'of transactions that were rolled back');
  const missed = [...committed.values()].filter(({ id }) => !advanced.has(id));
  assert.deepEqual(missed.map(name), [], 'committed and never done');
  const first = [...new Map(appeared.map((message) => [message.id, message])).values()];
  for (const [aggregate, messages] of Map.groupBy(first, ({ aggregateId }) => aggregateId)) {
    const came = messages.map(name);
    const inOrder = messages.toSorted((a, b) => orderOf(a) - orderOf(b)).map(name);
    const at = came.findIndex((each, n) => each !== inOrder[n]);
    assert.deepEqual(came.slice(at, at + 5), inOrder.slice(at, at + 5), `out of order in ${aggregate}`);
  }
}

function name({ aggregateId, payload }: SourcedMessage): string {
  return `${aggregateId} v${Buffer.from(payload).toString()}`;
}

/** Versions are counted from 1, and a change has at most ten messages. */
function orderOf({ payload }: SourcedMessage): number {
  const [major, minor] = Buffer.from(payload).toString().split('.').map(Number);
  return major! * 10 + minor!;
}

/** mulberry32 */
function random(seed: number): Pick {
  let state = seed | 0;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}
