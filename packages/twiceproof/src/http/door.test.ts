import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyLinesOf } from './door.ts';
import { parseIdempotencyKey } from './idempotency-key.ts';

test('each line is one value, whatever the case of its name', () => {
  assert.deepEqual(
    keyLinesOf(['Host', 'x', 'Idempotency-Key', 'a', 'x-idempotency-key', 'c', 'IDEMPOTENCY-KEY', 'b']),
    ['a', 'b'],
  );
  assert.deepEqual(keyLinesOf(['host', 'idempotency-key']), []);
});

test('behind a thousand lines there may be a second one, so that is no key', () => {
  const lines = (count: number): string[] => ['idempotency-key', 'a', ...Array<string>(2 * (count - 1)).fill('x')];
  assert.deepEqual(parseIdempotencyKey(keyLinesOf(lines(999))), { key: 'a' });
  assert.deepEqual(parseIdempotencyKey(keyLinesOf(lines(1_000))), { problem: 'key-malformed' });
});
