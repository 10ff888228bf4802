import assert from 'node:assert/strict';
import { test } from 'node:test';
import { planTopic } from './topic.ts';

test('without duplicates each message is of an order of its own', () => {
  const { plan, orders } = planTopic(100, 0, 7);
  assert.equal(orders, 100);
  assert.deepEqual(
    plan,
    plan.toSorted((a, b) => a - b),
  );
});

test('a duplicate is of an order that came before, soon or long ago', () => {
  const { plan, orders } = planTopic(10_000, 30, 7);
  assert.ok(orders > 6_800 && orders < 7_200, `${orders}`);
  const seen = new Set<number>();
  const distances: number[] = [];
  for (const order of plan) {
    assert.ok(seen.has(order) || order === seen.size);
    if (seen.has(order)) distances.push(seen.size - order);
    seen.add(order);
  }
  assert.equal(seen.size, orders);
  assert.ok(distances.some((distance) => distance <= 500) && distances.some((distance) => distance > 2_000));
  assert.deepEqual(planTopic(10_000, 30, 7).plan, plan);
  assert.notDeepEqual(planTopic(10_000, 30, 8).plan, plan);
});
