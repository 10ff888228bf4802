import assert from 'node:assert/strict';
import { test } from 'node:test';
import { requireCounts, withDefaults } from './defaults.ts';

test('what is undefined is not given, and a number must be one', () => {
  const defaults = { waitMs: 5, name: 'n' };
  assert.deepEqual(withDefaults(defaults, { waitMs: undefined, other: 1 }), { waitMs: 5, name: 'n', other: 1 });
  assert.deepEqual(withDefaults(defaults, { waitMs: 0, name: 'm' }), { waitMs: 0, name: 'm' });
  for (const waitMs of ['72h', '5', Number.NaN, -1, Infinity, null]) {
    assert.throws(() => withDefaults(defaults, { waitMs }), { code: 'TP_OPTION' }, String(waitMs));
  }
});

test('a number of things is a whole one, and not none', () => {
  requireCounts({ batch: 1, lanes: 64 });
  for (const lanes of [0, 2.5, Number.NaN, -1]) {
    assert.throws(() => requireCounts({ batch: 1, lanes }), { code: 'TP_OPTION', message: /lanes is a whole number/ });
  }
});
