import assert from 'node:assert/strict';
import { test } from 'node:test';
import { acceptPaced, type Connection } from './accepting.ts';
import { summary } from './expiry.ts';

/** A call is due every 10 ms, and takes 1; the third of them stalls. Time goes on only where it is said to. */
async function withStall(stallMs: number) {
  let nowMs = 1_000;
  let calls = 0;
  const clock = {
    now: () => nowMs,
    wait: async (ms: number) => {
      nowMs += ms;
    },
  };
  const connection: Connection = {
    query: async (text) => {
      if (!text.includes('INSERT')) return;
      calls += 1;
      nowMs += calls === 3 ? stallMs : 1;
      // As the bench does it: when the day has gone nothing more is needed.
      if (calls === 4) paced.stop();
    },
  };
  const paced = acceptPaced([connection], [], clock);
  await paced.running;
  return paced.accepts;
}

test('what queues behind a stall is late from the moment at which it was due, and none of it is left out', async () => {
  const accepts = await withStall(50);
  // The fourth is answered, and all is stopped, at 71 ms: by then eight were due.
  assert.deepEqual(
    accepts.map(({ atMs, ms }) => [atMs - 1_000, ms]),
    [
      [0, 1],
      [10, 1],
      [20, 50],
      [30, 41],
      [40, 32],
      [50, 23],
      [60, 14],
      [70, 5],
    ],
  );
});

test('a stall counts where it was met while the day went; messages/s are those that were answered', async () => {
  const accepts = await withStall(50);
  const { longestAcceptMs, longestBeforeMs, messagesPerSecond } = summary(accepts, {
    beganMs: 1_015,
    forgotAt: 1_030,
    endedAt: 1_035,
  });
  assert.deepEqual([longestAcceptMs, longestBeforeMs], [50, 1]);
  // The first was answered at 1 ms, the last at 75.
  assert.equal(messagesPerSecond, Math.round((1_000 * 80) / 74));
});
