import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TwiceproofError } from './errors.ts';
import { failureOf, withCauses } from './failure.ts';

const withCode = (code: string) => Object.assign(new Error('failed'), { code });

test('a lost database is told from a lost answer to COMMIT, and both from a bug', () => {
  assert.equal(failureOf(new TwiceproofError('TP_COMMIT_UNKNOWN', 'lost')), 'outcome-unknown');
  const lost = [
    'ECONNREFUSED',
    'ECONNRESET',
    'EPIPE',
    'ETIMEDOUT',
    '08006',
    '53300',
    '57P01',
    '57P03',
    '58030',
    '25P03',
    '25006',
  ];
  for (const code of lost) assert.equal(failureOf(withCode(code)), 'unavailable', code);
  for (const message of [
    'Connection terminated unexpectedly',
    'timeout exceeded when trying to connect',
    'Query read timeout',
    'Client has encountered a connection error and is not queryable',
  ]) {
    assert.equal(failureOf(new Error(message)), 'unavailable', message);
  }
  const bugs = [
    withCode('23505'),
    withCode('42P01'),
    withCode('ERR_ASSERTION'),
    withCode('ENOENT'),
    new Error('a timeout of ours'),
    'text',
    undefined,
  ];
  for (const bug of bugs) assert.equal(failureOf(bug), 'unexpected');
});

test('an error comes with what it was made of, however that is made', () => {
  const inner = new Error('inner');
  const outer = new Error('outer', { cause: inner });
  assert.deepEqual(withCauses(outer), [outer, inner]);
  for (const alone of [undefined, null, 'text', inner]) assert.deepEqual(withCauses(alone), [alone]);
  const loop = new Error('loop');
  loop.cause = loop;
  assert.equal(withCauses(loop).length, 5);
});
