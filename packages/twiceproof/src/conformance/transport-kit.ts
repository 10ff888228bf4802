import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { TwiceproofError } from '../errors.ts';
import type {
  Batch,
  Delivery,
  OutgoingRecord,
  Publisher,
  PublishOutcome,
  SubscribeOptions,
  Subscription,
  Transport,
  TransportFeature,
} from '../transport.ts';
import type { TransportHarness } from './transport.ts';

/** One promise of the contract and how it is tried. */
export interface TransportCase {
  name: string;
  features?: readonly TransportFeature[];
  hook?: 'doomedMember' | 'faults';
  run(kit: TransportKit): Promise<void>;
}

/** Longer than any transport may take to notice that a member is gone. */
export const patienceMs = 40_000;
/** How long to wait for what must not come. */
export const quietMs = 700;

export type TransportKit = ReturnType<typeof createKit>;

/** What a case works with; all that it opened is closed at its end. */
export function createKit(harness: TransportHarness) {
  const transports: Transport[] = [];
  let shared: { transport: Transport; publisher: Publisher } | undefined;

  function transport(options?: { publishDeadlineMs?: number }): Transport {
    const made = harness.transport(options);
    transports.push(made);
    return made;
  }

  function publisher(): Publisher {
    if (!shared) {
      const made = transport();
      shared = { transport: made, publisher: made.publisher() };
    }
    return shared.publisher;
  }

  return {
    harness,
    transport,
    /** A member of a group, on a transport of its own. */
    async subscribe(options: Partial<SubscribeOptions> & { topics: readonly string[] }): Promise<Subscription> {
      return await transport().subscribe({ group: harness.group(), ...options });
    },
    /** Publishes what must be acknowledged. */
    async publish(records: readonly OutgoingRecord[]): Promise<PublishOutcome[]> {
      const outcomes = await publisher().publish(records);
      assert.deepEqual(countOutcomes(outcomes), { acknowledged: records.length });
      return outcomes;
    },
    publisher,
    /** A batch that must come. */
    async receive(subscription: Subscription, maxRecords = 500): Promise<Batch> {
      const batch = await subscription.receive({ maxRecords, waitMs: patienceMs });
      assert.ok(batch, 'a batch must come');
      assertOneLane(batch);
      return batch;
    },
    async [Symbol.asyncDispose](): Promise<void> {
      await Promise.all(transports.map((each) => each.close()));
    },
  };
}

/** Receives and settles until the condition holds. Answers all that was settled, in the order of receipt. */
export async function settleUntil(
  subscription: Subscription,
  done: (settled: readonly Delivery[]) => boolean,
  maxRecords = 500,
): Promise<Delivery[]> {
  const settled: Delivery[] = [];
  const deadline = performance.now() + patienceMs;
  while (!done(settled)) {
    assert.ok(performance.now() < deadline, `only ${settled.length} records came in time`);
    const batch = await subscription.receive({ maxRecords, waitMs: 1000 });
    if (!batch) continue;
    assertOneLane(batch);
    if ((await subscription.settle(batch.deliveries)) === 'settled') settled.push(...batch.deliveries);
  }
  return settled;
}

export async function assertNothingComes(subscription: Subscription): Promise<void> {
  const batch = await subscription.receive({ maxRecords: 500, waitMs: quietMs });
  assert.deepEqual(batch?.deliveries.map(text) ?? [], []);
}

function assertOneLane({ lane, deliveries }: Batch): void {
  assert.ok(deliveries.length > 0, 'a batch is not empty');
  for (const delivery of deliveries) assert.deepEqual(delivery.lane, lane);
}

export function text(delivery: Delivery): string {
  return Buffer.from(delivery.value).toString();
}

export function keyOf(delivery: Delivery): string {
  return Buffer.from(delivery.key!).toString();
}

/** `count` records whose values are their numbers, over so many keys. */
export function numbered(topic: string, count: number, { keys = 1, from = 0 } = {}): OutgoingRecord[] {
  return Array.from({ length: count }, (_, i) => ({
    topic,
    key: `key-${(from + i) % keys}`,
    value: Buffer.from(String(from + i)),
  }));
}

/** The values of each key, in the order of first appearance. */
export function firstAppearances(deliveries: readonly Delivery[]): Map<string, string[]> {
  const byKey = new Map<string, Set<string>>();
  for (const delivery of deliveries) {
    const values = byKey.get(keyOf(delivery)) ?? new Set();
    byKey.set(keyOf(delivery), values.add(text(delivery)));
  }
  return new Map([...byKey].map(([key, values]) => [key, [...values]]));
}

/** Every published value has come, and no key's first appearances are out of order. */
export function assertAllInKeyOrder(published: readonly OutgoingRecord[], deliveries: readonly Delivery[]): void {
  const came = firstAppearances(deliveries);
  for (const [key, records] of Map.groupBy(published, (record) => record.key)) {
    assert.deepEqual(
      came.get(key) ?? [],
      records.map(({ value }) => Buffer.from(value).toString()),
      `values of ${key}`,
    );
  }
}

export function countOutcomes(outcomes: readonly PublishOutcome[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome } of outcomes) counts[outcome] = (counts[outcome] ?? 0) + 1;
  return counts;
}

export function errorCodeOf(outcome: PublishOutcome | undefined): string | undefined {
  return (outcome as { error?: TwiceproofError } | undefined)?.error?.code;
}

/** To be asked in a loop, so that what never comes is a failure and not a test that never ends. */
export function patience(what: string): () => void {
  const deadline = performance.now() + patienceMs;
  return () => assert.ok(performance.now() < deadline, `waited in vain until ${what}`);
}

export async function until(what: string, holds: () => boolean): Promise<void> {
  const inTime = patience(what);
  while (!holds()) {
    inTime();
    await delay(10);
  }
}

/** How long it took. */
export async function timed(work: Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await work;
  return performance.now() - begin;
}
