import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { uuidv7 } from '../uuid.ts';
import { keyHash } from './intent.ts';

const hashOf = (principal: string, operation: string, key: string): string =>
  keyHash({ principal, operation, key, requestHash: '', hashVersion: 1 });

test('no two scopes have the same hash, however their parts are cut', () => {
  const part = fc.string({ unit: fc.constantFrom('1', '2', ':', 'a'), maxLength: 4 });
  const scope = fc.tuple(part, part, part);
  fc.assert(
    fc.property(scope, scope, (one, other) => {
      assert.equal(hashOf(...one) === hashOf(...other), one.join('\0') === other.join('\0'));
    }),
    { numRuns: 2_000 },
  );
});

test('keys that are UUIDv7 are in the order of their time, and two of one time still differ by scope', () => {
  const [early, late] = [uuidv7(1_700_000_000_000), uuidv7(1_700_000_000_001)];
  for (const tenant of ['a', 'b', 'c']) {
    assert.ok(hashOf(tenant, 'o', early) < hashOf('a', 'o', late));
    assert.equal(hashOf(tenant, 'o', early).slice(0, 13), early.slice(0, 13));
  }
  assert.equal(new Set(['a', 'b', 'c'].map((tenant) => hashOf(tenant, 'o', early))).size, 3);
  assert.notEqual(hashOf('a', 'o', early.toUpperCase()), hashOf('a', 'o', early), 'another key is another key');
});

test('any other key is hashed as a whole, a UUID of version 4 too', () => {
  const key = '0198f0f0-0000-4000-8000-000000000000';
  assert.notEqual(hashOf('a', 'o', key).slice(0, 13), key.slice(0, 13));
});

test('a principal that cannot be stored as it is, is refused: it would be another one when it is read', () => {
  for (const principal of ['\ud800', 'a\0b']) assert.throws(() => hashOf(principal, 'o', 'k'), { code: 'TP_OPTION' });
});
