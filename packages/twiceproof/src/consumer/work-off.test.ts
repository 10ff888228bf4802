import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Applied, Part } from './apply.ts';
import { HandlerError } from './decide.ts';
import { createSlots } from './slots.ts';
import { workOff } from './work-off.ts';

const nothing: Applied = { first: [], duplicates: 0, held: [], ranLate: 0 };
const mayPass = new HandlerError(Object.assign(new Error('not now'), { retryable: true }), false);
const isAway = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' });

/** A part of one message, whose attempts end as `endOf` says until it is held. */
async function workOffOne(
  retryForMs: number,
  endOf: (attempt: number) => Error | undefined,
  atMs: number[] = [],
): Promise<Part['failed'][]> {
  const tried: Part['failed'][] = [];
  const apply = async ([part]: readonly Part[]): Promise<Applied> => {
    atMs.push(performance.now());
    const end = endOf(tried.push(part!.failed));
    if (end && !part!.failed) throw end;
    return nothing;
  };
  const lane = { topic: 'orders', partition: 0, topicId: 'x' };
  const delivery = { lane, key: undefined, value: Buffer.alloc(0), headers: [] };
  const slots = createSlots(1);
  await slots.take();
  const { signal } = new AbortController();
  await workOff({ apply, retryForMs, onFailure: 'park', slots }, { lane, deliveries: [delivery], signal }, signal);
  return tried;
}

test('what may pass is tried again until its time is over, and then held', async () => {
  const tried = await workOffOne(100, () => mayPass);
  const failed = { kind: 'parked', reason: 'Error: not now' } as const;
  assert.deepEqual(tried.at(-1), failed);
  assert.ok(tried.length > 2 && tried.slice(0, 2).every((each) => each === undefined), JSON.stringify(tried));
});

test('the time in which the database was away does not count', async () => {
  // The pauses between these are 350 ms, and at least half of that.
  const ends = [mayPass, isAway, isAway, mayPass];
  assert.deepEqual(await workOffOne(150, (attempt) => ends[attempt - 1]), Array(5).fill(undefined));
});

test('the pauses between attempts grow: what is away is not asked all the time', async () => {
  const atMs: number[] = [];
  await workOffOne(60_000, (attempt) => (attempt <= 5 ? isAway : undefined), atMs);
  const pauses = atMs.slice(1).map((ms, n) => ms - atMs[n]!);
  assert.equal(pauses.length, 5);
  // From 50 ms on twice as long each, and at least half of that. A timer may be a millisecond early, and never more.
  for (const [n, ms] of pauses.entries()) assert.ok(ms >= 25 * 2 ** n - 2, `pause ${n + 1}: ${ms} ms`);
});
