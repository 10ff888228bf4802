import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGate } from './gate.ts';

test('a refusal shuts it, one at a time tries again, after longer and longer, but never long; one that gets through opens it', () => {
  let nowMs = 0;
  const gate = createGate(() => nowMs);
  const triesIn = (ms: number): number => {
    let tries = 0;
    for (const endMs = nowMs + ms; nowMs < endMs; nowMs++) {
      if (!gate.admits()) continue;
      assert.equal(gate.admits(), false, 'a second one while the first tries');
      gate.refused();
      tries++;
    }
    return tries;
  };
  assert.ok(gate.admits() && gate.admits());
  gate.refused();
  gate.refused();
  assert.equal(gate.admits(), false);
  assert.equal(triesIn(10), 0);
  // 10, 30, 70, 150, 310 ms.
  assert.equal(triesIn(310), 5);
  assert.equal(triesIn(10_000), 40);
  nowMs += 250;
  assert.ok(gate.admits());
  gate.opened();
  assert.ok(gate.admits() && gate.admits());
  gate.refused();
  nowMs += 10;
  assert.ok(gate.admits(), 'it begins with a short pause again');
});
