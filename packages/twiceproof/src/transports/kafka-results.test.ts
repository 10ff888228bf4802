import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MultipleErrors, NetworkError, ResponseError, UserError } from '@platformatic/kafka';
import { TwiceproofError } from '../errors.ts';
import { readResults } from './kafka-results.ts';

const produceApi = 0;

/** The error that the client makes of one broker's answer: [partition, error code, base offset]. */
function answer(topic: string, parts: [number, number, bigint?][]): ResponseError {
  const failed = parts.filter(([, code]) => code !== 0);
  const partitionResponses = parts.map(([index, errorCode, baseOffset = -1n]) => ({ index, errorCode, baseOffset }));
  return new ResponseError(
    produceApi,
    11,
    Object.fromEntries(failed.map(([index, code]) => [`/responses/0/partition_responses/${index}`, [code, null]])),
    { responses: [{ name: topic, partitionResponses }] },
  );
}

function read(error: unknown, topics: [string, number][], offsets: [string, number, bigint][] = []): string[] {
  const results = readResults(
    topics.map(([topic, partition]) => ({ topic, partition })),
    error,
    offsets.map(([topic, partition, offset]) => ({ topic, partition, offset })),
  );
  return results.map((each) =>
    each.result === 'acknowledged' ? `at ${each.offset}` : `${each.result} ${each.error.code}`,
  );
}

test('a send that succeeds says where each partition begins', () => {
  const lanes: [string, number][] = [
    ['t', 0],
    ['t', 1],
  ];
  assert.deepEqual(
    read(undefined, lanes, [
      ['t', 1, 7n],
      ['t', 0, 3n],
    ]),
    ['at 3', 'at 7'],
  );
});

test('a partition that was acknowledged stays so, whatever happened beside it and in later attempts', () => {
  const error = new MultipleErrors('Producing messages failed.', [
    new MultipleErrors('produce failed 2 times.', [
      answer('t', [
        [0, 0, 40n],
        [1, 6],
      ]),
      new NetworkError('Connection closed'),
    ]),
  ]);
  Object.assign(error, { produced: { offsets: [{ topic: 't', partition: 2, offset: 9n }] } });
  assert.deepEqual(
    read(error, [
      ['t', 0],
      ['t', 1],
      ['t', 2],
      ['t', 3],
    ]),
    ['at 40', 'unknown TP_BROKER_UNREACHABLE', 'at 9', 'unknown TP_BROKER_UNREACHABLE'],
  );
});

test('each error code of the broker has its outcome, and only for its own partition', () => {
  const error = answer('t', [
    [0, 10], // MESSAGE_TOO_LARGE
    [1, 87], // INVALID_RECORD
    [2, 29], // TOPIC_AUTHORIZATION_FAILED
    [3, 19], // NOT_ENOUGH_REPLICAS: not written
    [4, 20], // NOT_ENOUGH_REPLICAS_AFTER_APPEND: written, and may stay
    [5, 7], // REQUEST_TIMED_OUT
  ]);
  const lanes = Array.from({ length: 7 }, (_, partition): [string, number] => ['t', partition]);
  assert.deepEqual(read(error, lanes), [
    'rejected TP_RECORD_TOO_LARGE',
    'rejected TP_RECORD_INVALID',
    'refused TP_NOT_AUTHORIZED',
    'unknown TP_BROKER_UNREACHABLE',
    'unknown TP_BROKER_UNREACHABLE',
    'unknown TP_BROKER_UNREACHABLE',
    'unknown TP_BROKER_UNREACHABLE',
  ]);
});

test('a topic that was deleted meanwhile is refused, the others are unknown, and a deadline is a deadline', () => {
  const gone = new MultipleErrors('Producing messages failed.', [new UserError('Unknown topic t.')]);
  assert.deepEqual(
    read(gone, [
      ['t', 0],
      ['other', 0],
    ]),
    ['refused TP_TOPIC_UNKNOWN', 'unknown TP_BROKER_UNREACHABLE'],
  );
  assert.deepEqual(read(new TwiceproofError('TP_DEADLINE', 'too long'), [['t', 0]]), ['unknown TP_DEADLINE']);
});

test('who may not even ask for a producer id is not authorized, which is something else than a broker that is away', () => {
  const initProducerId = 22;
  const error = new ResponseError(initProducerId, 4, { '/': [31, null] }, {});
  assert.deepEqual(read(new MultipleErrors('initProducerId failed 1 times.', [error]), [['t', 0]]), [
    'refused TP_NOT_AUTHORIZED',
  ]);
  assert.deepEqual(read(new NetworkError('Connection closed'), [['t', 0]]), ['unknown TP_BROKER_UNREACHABLE']);
});

test('what the broker said stands in the message, for whoever has to mend it', () => {
  const [result] = readResults([{ topic: 't', partition: 0 }], answer('t', [[0, 19]]), []);
  assert.ok(result && 'error' in result);
  assert.match(result.error.message, /for t: NOT_ENOUGH_REPLICAS \(19\)/);
});
