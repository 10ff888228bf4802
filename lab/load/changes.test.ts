import assert from 'node:assert/strict';
import { test } from 'node:test';
import { defaults, type LoadOptions } from './options.ts';
import { planFrom, type Send } from './plan.ts';

function intentsOf(changed: Partial<LoadOptions> = {}): Send[] {
  const plan = planFrom({ ...defaults, rate: 2_000, durationS: 20, seed: 7, ...changed });
  const intents: Send[] = [];
  for (let intent = plan.next(); intent; intent = plan.next()) intents.push(intent);
  return intents;
}

test('a fifth changes orders that were asked for a second ago or earlier, two or more changes for each', () => {
  const intents = intentsOf({ statusRate: 0.2 });
  const changes = intents.filter(({ operation }) => operation === 'set-status');
  // Not in the first second, which has nothing to change yet.
  const share = changes.length / intents.length;
  assert.ok(share > 0.17 && share < 0.21, `${share} are changes`);
  for (const { order, dueMs } of changes) assert.ok(dueMs - order!.dueMs >= defaults.statusLagMs);
  const creates = new Map(
    intents.flatMap((one) => (one.operation === 'create' && one.order ? [[one.order, one]] : [])),
  );
  const keysOf = new Map(changes.map(({ order }) => [order, new Set<number>()]));
  for (const { order, keyNumber } of changes) keysOf.get(order)!.add(keyNumber);
  for (const order of keysOf.keys()) assert.ok(creates.has(order!), 'what is changed was created');
  const several = [...keysOf.values()].filter(({ size }) => size >= 2).length;
  assert.ok(several / keysOf.size > 0.5, `${several} of ${keysOf.size} orders are changed more than once`);
});

test('a key that comes again asks the same', () => {
  const ofKey = new Map<number, Send>();
  let again = 0;
  for (const intent of intentsOf({ statusRate: 0.5, retryRate: 0.8 })) {
    const first = ofKey.get(intent.keyNumber);
    if (first) {
      assert.equal(intent.operation, first.operation);
      assert.equal(intent.order, first.order);
      if (first.operation === 'set-status') again++;
    } else ofKey.set(intent.keyNumber, intent);
  }
  assert.ok(again > 200, `${again} changes came again`);
});

test('changes leave keys, retries and schedule as they are', () => {
  const without = intentsOf().map(({ operation: _, order: __, ...rest }) => rest);
  const withChanges = intentsOf({ statusRate: 0.2 }).map(({ operation: _, order: __, ...rest }) => rest);
  assert.deepEqual(withChanges, without);
});

test('only the latest orders are changed, however long it runs', () => {
  const changes = intentsOf({ statusRate: 0.2, rate: 100_000, durationS: 12 }).filter(
    // A hot key that comes again changes what it changed before, however old that is.
    ({ operation, retries }) => operation === 'set-status' && retries === 0,
  );
  const { dueMs, order } = changes.at(-1)!;
  assert.ok(dueMs - order!.dueMs < 12_000);
  const oldest = Math.min(...changes.slice(-1_000).map((one) => one.order!.dueMs));
  assert.ok(oldest > 1_000, `one of ${oldest} ms is still changed`);
});
