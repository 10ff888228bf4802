import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { test } from 'node:test';
import { watchStandstill } from './standstill.ts';

function compute(ms: number): void {
  for (const until = performance.now() + ms; performance.now() < until;);
}

test('a computation that gives nothing else a turn is told, once, and with how long it was', async () => {
  const told: number[] = [];
  const end = watchStandstill(1_000, (ms) => told.push(ms));
  compute(1_800);
  while (told.length === 0) await delay(1);
  end();
  assert.equal(told.length, 1);
  assert.ok(told[0]! > 1_000 && told[0]! <= 2_400, `${told[0]} ms`);
});

test('short ones, and what comes after the end of the watch, are not told', async () => {
  const told: number[] = [];
  const end = watchStandstill(2_000, (ms) => told.push(ms));
  for (let n = 0; n < 4; n += 1) {
    compute(400);
    await delay(1);
  }
  end();
  compute(2_600);
  await delay(700);
  assert.deepEqual(told, []);
});
