import assert from 'node:assert/strict';
import { test } from 'node:test';
import { usableOf } from './kafka-fetcher.ts';

test('beside an error, a lane with records of transactions that were rolled back is left to the next answer', () => {
  const part = (partitionIndex: number, abortedTransactions: unknown) => ({ partitionIndex, abortedTransactions });
  const aborted = [{ producerId: 1n, firstOffset: 5n }];
  const responses = [{ topicId: 'a', partitions: [part(0, []), part(1, aborted), part(2, undefined)] }];
  const usable = usableOf(Object.assign(new Error('a leader has moved'), { response: { sessionId: 7, responses } }));
  assert.deepEqual(usable, {
    sessionId: 7,
    responses: [{ topicId: 'a', partitions: [part(0, []), part(2, undefined)] }],
  });
  for (const error of [new Error('no answer at all'), { response: {} }, undefined])
    assert.equal(usableOf(error), undefined);
});
