import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { rangesAhead } from './retention.ts';

const range = (from: bigint, to: bigint) => ({ name: `p${from}`, from, to });

test('the step that is under way only while the default partition is empty, and the two behind it', () => {
  const ahead = (ranges: ReturnType<typeof range>[], nextXid: bigint, isDefaultEmpty: boolean) =>
    rangesAhead({ ranges, nextXid, isDefaultEmpty }, 100n).map(({ from, to }) => [from, to]);
  const [first, second, third] = [
    [700n, 800n],
    [800n, 900n],
    [900n, 1_000n],
  ];
  assert.deepEqual(ahead([], 750n, true), [first, second, third]);
  assert.deepEqual(ahead([], 750n, false), [second, third]);
  assert.deepEqual(ahead([range(800n, 900n)], 750n, false), [third]);
  assert.deepEqual(ahead([range(850n, 1_050n)], 750n, false), [], 'made with another step');
  assert.deepEqual(ahead([], 800n, false), [
    [900n, 1_000n],
    [1_000n, 1_100n],
  ]);
});

test('what is made never overlaps anything, and never holds an id that was given, unless the default partition is empty', () => {
  const big = (max: number) => fc.integer({ min: 0, max }).map(BigInt);
  fc.assert(
    fc.property(
      fc.array(fc.tuple(big(3_000), big(500)), { maxLength: 5 }),
      big(3_000),
      big(500),
      fc.boolean(),
      (found, nextXid, step, isDefaultEmpty) => {
        const ranges = found.map(([from, length]) => range(from, from + length + 1n));
        const made = rangesAhead({ ranges, nextXid, isDefaultEmpty }, step + 1n);
        for (const { from, to } of made) {
          assert.ok(ranges.every((other) => other.to <= from || to <= other.from));
          assert.ok(isDefaultEmpty || from > nextXid);
          assert.ok(to > nextXid);
        }
      },
    ),
  );
});
