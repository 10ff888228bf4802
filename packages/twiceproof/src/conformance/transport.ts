import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Transport, TransportFeature } from '../transport.ts';
import { faultCases } from './transport-faults.ts';
import { groupCases } from './transport-groups.ts';
import { createKit, type TransportCase } from './transport-kit.ts';
import { publishingCases } from './transport-publishing.ts';
import { receivingCases } from './transport-receiving.ts';

/** What the suite needs in order to try a transport. */
export interface TransportHarness {
  /** A new topic, which answers its full name. Records larger than `maxMessageBytes` are not taken by the broker. */
  createTopic(options: { partitions: number; maxMessageBytes?: number }): Promise<string>;
  /** A group that no other test uses. */
  group(): string;
  /** A transport of its own, which the suite closes. */
  transport(options?: { publishDeadlineMs?: number }): Transport;
  /**
   * A member of the group that dies: it receives a batch, settles nothing and, when it is killed, closes
   * nothing. Resolves when it holds its batch. For a broker outside this process that is another process and SIGKILL.
   */
  doomedMember?(options: { group: string; topic: string }): Promise<{ kill(): Promise<void> }>;
  faults?: TransportFaults;
}

/** What can be done to the broker. Each call resolves when it is done. */
export interface TransportFaults {
  /** One of several brokers dies without a word (SIGKILL). */
  killBroker(): Promise<void>;
  /** The one that was killed is back and serves. */
  startBroker(): Promise<void>;
  /** No broker answers anything, and connections stay open (SIGSTOP). */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
}

/** `healthy` leaves out what does harm to the broker, `faults` is only that. */
export type TransportSuitePart = 'healthy' | 'faults' | 'all';

/**
 * Registers one test for each promise of `transport.ts`. What the transport does not declare, or
 * the harness cannot do, is a test too: it bears the name of what does not apply, and checks that
 * the transport does not offer it all the same.
 */
export function testTransport(name: string, harness: TransportHarness, part: TransportSuitePart = 'all'): void {
  const healthy = [...publishingCases, ...receivingCases, ...groupCases];
  const cases = { healthy, faults: faultCases, all: [...healthy, ...faultCases] }[part];
  describe(`transport ${name}`, () => {
    for (const each of cases) register(harness, each);
  });
}

function register(harness: TransportHarness, each: TransportCase): void {
  if (each.hook && !harness[each.hook]) {
    test(`${each.name} (does not apply: the harness has no ${each.hook})`, () => {
      assert.equal(harness[each.hook!], undefined);
    });
    return;
  }
  const missing = missingFeature(harness, each.features ?? []);
  if (missing) {
    test(`${each.name} (does not apply: ${missing} is not declared)`, () => assertNotOffered(harness, missing));
    return;
  }
  test(each.name, async () => {
    await using kit = createKit(harness);
    await each.run(kit);
  });
}

function missingFeature(harness: TransportHarness, needed: readonly TransportFeature[]): TransportFeature | undefined {
  const { features } = harness.transport();
  return needed.find((feature) => !features.has(feature));
}

async function assertNotOffered(harness: TransportHarness, feature: TransportFeature): Promise<void> {
  await using kit = createKit(harness);
  if (feature === 'topics') return assert.equal(kit.transport().topicProblems, undefined);
  if (feature === 'times') return assert.equal(kit.transport().topicTimes, undefined);
  const topic = await harness.createTopic({ partitions: 1 });
  const subscription = await kit.subscribe({ topics: [topic] });
  await kit.publish([{ topic, key: 'k', value: Buffer.from('v') }]);
  const batch = await kit.receive(subscription);
  if (feature === 'positions') assert.equal(batch.deliveries[0]!.position, undefined);
  if (feature === 'pause') assert.deepEqual([subscription.pause, subscription.resume], [undefined, undefined]);
}
