import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { shrink } from './shrink.ts';

const items = Array.from({ length: 28 }, (_, n) => n);
const needs =
  (...wanted: number[]) =>
  async (subset: readonly number[]): Promise<boolean> =>
    Promise.resolve(wanted.every((each) => subset.includes(each)));

test('one fault that breaks it is found, whichever it is', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 0, max: 27 }), async (guilty) => {
      assert.deepEqual((await shrink(items, needs(guilty), 100)).items, [guilty]);
    }),
  );
});

test('two that break it only together are found', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.uniqueArray(fc.integer({ min: 0, max: 27 }), { minLength: 2, maxLength: 2 }),
      async (guilty) => {
        const { items: left } = await shrink(items, needs(...guilty), 1_000);
        assert.deepEqual(
          left,
          guilty.toSorted((a, b) => a - b),
        );
      },
    ),
  );
});

test('never more runs than allowed, and what is answered was seen to fail', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 0, max: 12 }), fc.integer({ min: 0, max: 27 }), async (maxRuns, guilty) => {
      let ran = 0;
      const { items: left, runs } = await shrink(
        items,
        async (subset) => {
          ran += 1;
          return needs(guilty)(subset);
        },
        maxRuns,
      );
      assert.ok(ran <= maxRuns && runs === ran);
      assert.ok(left.includes(guilty));
    }),
  );
});

test('what does not fail again stays as it was', async () => {
  assert.deepEqual((await shrink(items, async () => Promise.resolve(false), 6)).items, items);
});
