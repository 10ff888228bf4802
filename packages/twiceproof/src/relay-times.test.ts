import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { relayTimes, type RelayTimes } from './relay-times.ts';

test('the times stand in order by themselves, and each of them can be changed', () => {
  assert.deepEqual(relayTimes(), { publishDeadlineMs: 15_000, idleTimeoutMs: 30_000, watchdogMs: 45_000 });
  assert.equal(relayTimes({ watchdogMs: 60_000 }).watchdogMs, 60_000);
});

test('publish deadline < idle timeout < watchdog: any other order is refused', () => {
  const anyMs = fc.oneof(fc.integer({ min: -10, max: 2 ** 31 + 10 }), fc.constantFrom(1, 2, 3, Number.NaN, Infinity));
  fc.assert(
    fc.property(anyMs, anyMs, anyMs, (publishDeadlineMs, idleTimeoutMs, watchdogMs) => {
      const times: RelayTimes = { publishDeadlineMs, idleTimeoutMs, watchdogMs };
      const inOrder = [0, publishDeadlineMs, idleTimeoutMs, watchdogMs, 2 ** 31];
      if (inOrder.every((ms, n) => n === 0 || inOrder[n - 1]! < ms)) assert.deepEqual(relayTimes(times), times);
      else assert.throws(() => relayTimes(times), { code: 'TP_OPTION' });
    }),
    { numRuns: 2_000 },
  );
});
