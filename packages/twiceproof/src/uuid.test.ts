import assert from 'node:assert/strict';
import { test } from 'node:test';
import { timeOfUuidv7, uuidv7 } from './uuid.ts';

test('a UUIDv7 has the form of RFC 9562, and its time is the one it was made with', () => {
  // The example of RFC 9562, appendix A.6.
  assert.equal(uuidv7(0x017f22e279b0, '0cc318c4dc0c0c07398f'), '017f22e2-79b0-7cc3-98c4-dc0c0c07398f');
  for (const time of [0, 1, Date.now(), 2 ** 48 - 1]) assert.equal(timeOfUuidv7(uuidv7(time)), time);
});

test('many are all different, and sort by their time', () => {
  const ids = Array.from({ length: 20_000 }, (_, n) => uuidv7(1_000_000 + n));
  assert.equal(new Set(ids).size, ids.length);
  assert.deepEqual(ids.toSorted(), ids);
  assert.equal(new Set(Array.from({ length: 20_000 }, () => uuidv7(5).slice(14))).size, 20_000);
});

test('what is no UUIDv7 has no time', () => {
  for (const text of [
    '',
    'x',
    '017f22e2-79b0-4cc3-98c4-dc0c0c07398f',
    '017f22e2-79b0-7cc3-18c4-dc0c0c07398f',
    '017f22e279b07cc398c4dc0c0c07398f',
  ]) {
    assert.equal(timeOfUuidv7(text), undefined, text);
  }
});
