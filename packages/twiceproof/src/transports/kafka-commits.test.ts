import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { Position } from '../transport.ts';
import { createCommits, type CommitsOptions } from './kafka-commits.ts';
import { createLane, revokeLane, type LaneState } from './lanes.ts';

const lanes = (): LaneState[] => [0, 1].map((partition) => createLane({ topic: 't', partition }, 0n));

/** A broker that answers when it is told to. */
function slowBroker(options: Partial<CommitsOptions> = {}) {
  const asked: { offsets: string[]; answer(): void; refuse(error: unknown): void }[] = [];
  const heard: string[] = [];
  const commits = createCommits({
    everyMs: 0,
    commit: async (positions: Position[]) =>
      new Promise<void>((answer, refuse) => {
        asked.push({ offsets: positions.map(({ partition, offset }) => `${partition}:${offset}`), answer, refuse });
      }),
    lost: () => heard.push('lost'),
    failed: ({ code }) => heard.push(code),
    ...options,
  });
  return { commits, asked, heard };
}

test('requests follow one another, so that no answer that is late sets a lane back', async () => {
  const { commits, asked } = slowBroker();
  const [one, other] = lanes() as [LaneState, LaneState];
  const first = commits.add(one, 3n);
  await turn();
  // All that comes while the first is under way goes with the next, each lane with its last.
  const later = [commits.add(one, 5n), commits.add(other, 2n), commits.add(one, 8n)];
  await turn();
  assert.deepEqual(
    asked.map(({ offsets }) => offsets),
    [['0:3']],
  );
  asked[0]!.answer();
  assert.equal(await first, 'settled');
  await turn();
  assert.deepEqual(asked[1]!.offsets, ['0:8', '1:2']);
  asked[1]!.answer();
  assert.deepEqual(await Promise.all(later), ['settled', 'settled', 'settled']);
  assert.equal(asked.length, 2);
});

test('of a lane that is not ours any more the broker is told nothing', async () => {
  const { commits, asked } = slowBroker();
  const [one, other] = lanes() as [LaneState, LaneState];
  revokeLane(one);
  assert.equal(await commits.add(one, 3n), 'stale');
  const both = [commits.add(one, 4n), commits.add(other, 2n)];
  await turn();
  assert.deepEqual(
    asked.map(({ offsets }) => offsets),
    [['1:2']],
  );
  asked[0]!.answer();
  assert.deepEqual(await Promise.all(both), ['stale', 'settled']);
});

test('a broker that refuses because the group has moved on is believed at once', async () => {
  const { commits, asked, heard } = slowBroker();
  const [one] = lanes() as [LaneState];
  const told = commits.add(one, 3n);
  await turn();
  asked[0]!.refuse({ apiId: 'ILLEGAL_GENERATION' });
  assert.equal(await told, 'stale');
  assert.deepEqual(heard, ['lost']);
  assert.equal(asked.length, 1);
});

test('what may wait is told with the last position of each lane, and waits for nothing when it is asked for', async () => {
  const { commits, asked } = slowBroker({ everyMs: 3_600_000 });
  const [one, other] = lanes() as [LaneState, LaneState];
  assert.deepEqual(await Promise.all([commits.add(one, 3n), commits.add(other, 1n), commits.add(one, 9n)]), [
    'settled',
    'settled',
    'settled',
  ]);
  assert.equal(asked.length, 0);
  const told = commits.flush();
  await turn();
  assert.deepEqual(asked[0]!.offsets, ['0:9', '1:1']);
  asked[0]!.answer();
  assert.deepEqual(await told, new Set([one, other]));
});
