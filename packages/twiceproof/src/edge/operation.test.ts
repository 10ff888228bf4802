import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { canonicalJson } from './operation.ts';

/** The value with its keys in order, by what JSON itself does. */
function sorted(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (part === null || typeof part !== 'object' || Array.isArray(part)) return part;
    return Object.fromEntries(Object.entries(part).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  });
}

test('the canonical form is JSON with its keys in order, for every value that JSON can hold', () => {
  // Keys that look like numbers are always in the order of numbers in an object, so JSON itself cannot sort them.
  const key = fc.string().filter((name) => !/^\d+$/.test(name) && name !== '__proto__');
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      fc.jsonValue({ maxDepth: 0 }),
      fc.array(tie('value')),
      fc.dictionary(key, tie('value')),
    ),
  }));
  fc.assert(
    fc.property(value, (any) => {
      assert.equal(canonicalJson(any), sorted(any));
    }),
  );
  const odd = { b: undefined, a: new Date(0), c: [undefined, Number.NaN] };
  assert.equal(canonicalJson(odd), sorted(odd));
  assert.equal(canonicalJson({ 10: 1, 9: 2 }), '{"10":1,"9":2}');
});
