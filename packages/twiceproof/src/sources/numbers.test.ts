import assert from 'node:assert/strict';
import { test } from 'node:test';
import { numbersIn } from './numbers.ts';

test('numbers are told and dropped from the front, until none is left', () => {
  const numbers = numbersIn('1,22,333,4');
  assert.deepEqual(numbers.first(3), ['1', '22', '333']);
  assert.deepEqual(numbers.first(1), ['1'], 'they stay until they are dropped');
  numbers.drop(numbers.first(3).slice(0, 2));
  assert.deepEqual([numbers.first(9), numbers.isEmpty()], [['333', '4'], false]);
  numbers.drop(numbers.first(2));
  assert.deepEqual([numbers.first(2), numbers.isEmpty()], [[], true]);
  assert.deepEqual(numbers.first(0), []);
});

test('where the server has written nothing there is nothing', () => {
  assert.deepEqual([numbersIn(null).first(5), numbersIn(null).isEmpty()], [[], true]);
});
