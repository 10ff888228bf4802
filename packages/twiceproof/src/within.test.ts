import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deferred } from './deferred.ts';
import { within } from './within.ts';

const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
const late = (): Error => new Error('late');

test('the result or the failure that comes in time is passed on, and leaves no timer behind', async () => {
  const before = timers();
  assert.equal(await within(60_000, Promise.resolve(7), late), 7);
  await assert.rejects(within(60_000, Promise.reject(new Error('of its own')), late), /of its own/);
  assert.equal(timers(), before);
});

test('what does not come in time fails with our own error, once, and its later failure is nobody’s', async () => {
  const { promise, reject } = deferred<never>();
  await assert.rejects(within(20, promise, late), /^Error: late$/);
  await assert.rejects(within(-1, promise, late), /^Error: late$/);
  // Unhandled, it would end this process.
  reject(new Error('much later'));
  await new Promise(setImmediate);
});
