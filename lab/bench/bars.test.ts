import assert from 'node:assert/strict';
import { test } from 'node:test';
import { judge, median, medianOf } from './bars.ts';
import { exampleRound } from './example-round.ts';

test('the median is the middle one, or between the two in the middle', () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([10, 9, 100]), 10, 'by number, not by text');
  assert.equal(median([4, 1, 2, 3]), 2.5);
  assert.equal(median([7]), 7);
});

test('medians keep the form, and each number is its own', () => {
  const all = [
    { a: 1, deep: { b: 30, only: { x: 6 } } },
    { a: 2, deep: { b: 10, only: {} } },
    { a: 9, deep: { b: 20, only: {} } },
  ];
  assert.deepEqual(medianOf(all), { a: 2, deep: { b: 20, only: { x: 0 } } });
  const round = exampleRound();
  assert.deepEqual(medianOf([round, round, round]), round);
});

function failed(...rounds: Parameters<typeof exampleRound>[0][]): string[] {
  return judge(rounds.map(exampleRound))
    .filter(({ pass }) => !pass)
    .map(({ name }) => name);
}

test('every bar of the issue is there, and good figures pass', () => {
  const bars = judge([exampleRound(), exampleRound(), exampleRound()]);
  assert.deepEqual(
    bars.map(({ kind, target }) => `${kind} ${target}`),
    ['bar >= 2.5', 'bar < 25', 'bar >= 0.9999', 'bar none', 'bar none', 'bar none', 'aim < 25'],
  );
  assert.ok(bars.every(({ values, pass }) => values.length === 3 && pass));
});

test('one bad round of three does not fail a median, two do', () => {
  assert.deepEqual(failed({ group: 2_000 }, {}, {}), []);
  assert.match(failed({ group: 2_000 }, { group: 2_400 }, {}).join(), /^throughput of group commit over/);
  assert.deepEqual(failed({ p99Ms: 900 }, {}, {}), []);
  assert.match(failed({ p99Ms: 900 }, {}, { p99Ms: 25 }).join(), /^group commit at 5000 requests\/s: p99, ms$/);
  assert.match(failed({ okShare: 0.99 }, { okShare: 0.99 }, {}).join(), /share answered 2xx$/);
});

test('one deadlock in one of three rounds is too many', () => {
  assert.deepEqual(failed({ deadlocks: 1 }, {}, {}), ['hot keys: deadlocks']);
  assert.deepEqual(failed({}, { serializationFailures: 1 }, {}), ['hot keys: serialization failures']);
  assert.deepEqual(failed({}, {}, { differentAnswers: 1 }), ['hot keys: answers that differ from the first']);
});

test('what was not run is not judged', () => {
  assert.deepEqual(judge([{ edge: {}, hot: {} }]), []);
  const { group, handler } = exampleRound().edge;
  assert.deepEqual(
    judge([{ edge: { group: group!, handler: handler! }, hot: {} }]).map(({ name }) => name.slice(0, 20)),
    ['group commit at 5000', 'group commit at 5000', 'group commit at 1000'],
  );
});
