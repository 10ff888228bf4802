import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { parseIdempotencyKey } from './idempotency-key.ts';

const malformed = { problem: 'key-malformed' };

test('the bare and the quoted form of the same characters are the same key', () => {
  for (const text of ['a', 'A.b_c:d-9', '0198f3a0-0000-7000-8000-000000000000', 'x'.repeat(255)]) {
    assert.deepEqual(parseIdempotencyKey([text]), { key: text });
    assert.deepEqual(parseIdempotencyKey([`"${text}"`]), { key: text });
  }
});

test('what stands between quotes is unescaped, and counted then', () => {
  assert.deepEqual(parseIdempotencyKey(['"a\\"b\\\\c"']), { key: 'a"b\\c' });
  assert.deepEqual(parseIdempotencyKey([`"${'\\"'.repeat(255)}"`]), { key: '"'.repeat(255) });
  assert.deepEqual(parseIdempotencyKey([`"${'\\"'.repeat(256)}"`]), malformed);
  assert.deepEqual(parseIdempotencyKey([`"${'x'.repeat(256)}"`]), malformed);
});

test('everything else is refused', () => {
  assert.deepEqual(parseIdempotencyKey([]), { problem: 'key-missing' });
  const wrong = [
    '',
    '""',
    '"',
    'a b',
    '"a b"',
    'a, b',
    '"a", "b"',
    'a\0',
    '"a\0"',
    'é',
    '"é"',
    '"a\\b"',
    '"a"b',
    '"a";p=1',
  ];
  for (const text of [...wrong, 'x'.repeat(256), 'a/b', "'a'", ' a', 'a\n', '"a\n"', '"a\\"']) {
    assert.deepEqual(parseIdempotencyKey([text]), malformed, JSON.stringify(text));
  }
  assert.deepEqual(parseIdempotencyKey(['a', 'a']), malformed);
});

test('two lines that were joined on the way are never one key', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary-ascii' }), fc.string({ unit: 'binary-ascii' }), (one, other) => {
      assert.deepEqual(parseIdempotencyKey([`${one}, ${other}`]), malformed);
    }),
    { numRuns: 5_000 },
  );
});

test('whatever is taken is 1 to 255 visible characters, and its quoted form is taken for the same', () => {
  const likely = fc.string({
    unit: fc.constantFrom('a', 'Z', '0', '.', '-', '"', '\\', ' ', '\0', 'é', ';'),
    maxLength: 12,
  });
  const quoted = likely.map((text) => `"${text}"`);
  fc.assert(
    fc.property(fc.oneof(likely, quoted, fc.string({ unit: 'binary', maxLength: 600 })), (text) => {
      const parsed = parseIdempotencyKey([text]);
      if ('problem' in parsed) return;
      assert.match(parsed.key, /^[\x21-\x7e]{1,255}$/);
      const again = `"${parsed.key.replaceAll(/["\\]/g, String.raw`\$&`)}"`;
      assert.deepEqual(parseIdempotencyKey([again]), parsed);
    }),
    { numRuns: 20_000 },
  );
});

test('a long one takes no longer than it is long', () => {
  const began = performance.now();
  for (const text of ['"' + '\\"'.repeat(5_000_000), '"'.repeat(10_000_000), 'a'.repeat(10_000_000)]) {
    assert.deepEqual(parseIdempotencyKey([text]), malformed);
  }
  assert.ok(performance.now() - began < 1_000);
});
