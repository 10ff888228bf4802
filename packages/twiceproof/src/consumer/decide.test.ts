import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TwiceproofError } from '../errors.ts';
import { decide, HandlerError } from './decide.ts';

const withCode = (code: string): Error => Object.assign(new Error(code), { code });
const retryable = Object.assign(new Error('later'), { retryable: true });

test('what is not the message is tried again for as long as it takes, and never halved', () => {
  const lost = new Error('Connection terminated unexpectedly');
  const unknown = new TwiceproofError('TP_COMMIT_UNKNOWN', 'x');
  for (const cause of [
    lost,
    unknown,
    withCode('57P01'),
    withCode('53300'),
    withCode('40001'),
    withCode('ECONNREFUSED'),
    withCode('42501'),
    withCode('42P01'),
    new Error('charging failed', { cause: withCode('40P01') }),
    new Error('charging failed', { cause: new Error('by the ORM', { cause: lost }) }),
  ]) {
    for (const messages of [1, 500]) {
      assert.equal(
        decide(new HandlerError(cause, true), { messages, failingMs: 1e6, retryForMs: 5 }),
        'again',
        cause.message,
      );
    }
  }
  // Outside of the handler it is our own, or the database's.
  assert.equal(decide(withCode('55000'), { messages: 500, failingMs: 9, retryForMs: 5 }), 'again');
  assert.equal(decide(withCode('42501'), { messages: 1, failingMs: 9, retryForMs: 5 }), 'again');
});

test('what the handler threw is halved until its message stands alone, and then held', () => {
  for (const cause of [new Error('no'), withCode('23505'), withCode('ENOENT'), undefined, null, 'text', retryable]) {
    assert.equal(decide(new HandlerError(cause, false), { messages: 2, failingMs: 0, retryForMs: 5 }), 'halve');
  }
  const loop = new Error('no');
  loop.cause = loop;
  const notSent = new TypeError('fetch failed', { cause: withCode('UND_ERR_INVALID_ARG') });
  for (const cause of [loop, notSent, withCode('23505'), withCode('ENOENT'), undefined, null, 'text']) {
    assert.equal(decide(new HandlerError(cause, false), { messages: 1, failingMs: 0, retryForMs: 5 }), 'hold');
  }
});

test('what may pass is tried for some time first: also what was too slow, which may be the fault of others', () => {
  const unreachable = withCode('ECONNREFUSED'); // A service of its own.
  const readTimeout = new Error('Query read timeout');
  const fetches = ['ECONNREFUSED', 'UND_ERR_SOCKET', 'UND_ERR_HEADERS_TIMEOUT'].map(
    (code) => new TypeError('fetch failed', { cause: withCode(code) }),
  );
  const outOfTime = new DOMException('The operation was aborted due to timeout', 'TimeoutError');
  const wrapped = new Error('no', { cause: withCode('57014') });
  const all = [
    retryable,
    wrapped,
    withCode('57014'),
    withCode('55P03'),
    unreachable,
    readTimeout,
    ...fetches,
    outOfTime,
  ];
  for (const cause of all) {
    assert.equal(decide(new HandlerError(cause, false), { messages: 1, failingMs: 4, retryForMs: 5 }), 'again');
    assert.equal(decide(new HandlerError(cause, false), { messages: 1, failingMs: 5, retryForMs: 5 }), 'hold');
    assert.equal(decide(new HandlerError(cause, false), { messages: 1, failingMs: 0, retryForMs: 0 }), 'hold');
  }
});
