import assert from 'node:assert/strict';
import { test } from 'node:test';
import { arrayText } from './array-text.ts';

test('what the client would write itself is written alike, and the rest is left to it', () => {
  assert.equal(arrayText([]), '{}');
  assert.equal(arrayText([1, -2.5, 3n, true, null, undefined]), '{1,-2.5,3,true,NULL,NULL}');
  assert.equal(arrayText(['', 'NULL', 'a b', '{,}', 'say "\\"']), '{"","NULL","a b","{,}","say \\"\\\\\\""}');
  assert.equal(arrayText([Buffer.from([0, 255]), Buffer.alloc(0)]), '{"\\\\x00ff","\\\\x"}');
  for (const other of [new Date(0), [1], { a: 1 }, new Uint8Array(1)]) assert.equal(arrayText(['a', other]), undefined);
});
