import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keep, type Life } from './keep.ts';

interface Fake extends Life {
  end(): void;
}

/** Each start that was asked for, and how to end what it gave. */
function starts(outcome: (n: number) => 'serves' | 'fails') {
  const lives: Fake[] = [];
  const waiting: (() => void)[] = [];
  let asked = 0;
  return {
    start: async (): Promise<Life> => {
      asked += 1;
      for (const tell of waiting.splice(0)) tell();
      if (outcome(asked) === 'fails') throw new Error(`start ${asked} fails`);
      const { promise, resolve } = Promise.withResolvers<void>();
      const life = { pid: 1_000 + asked, ended: promise, end: resolve };
      lives.push(life);
      return Promise.resolve(life);
    },
    lives,
    asked: async (times: number): Promise<void> => {
      while (asked < times) await new Promise<void>((resolve) => waiting.push(resolve));
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}

test('what ends is started again, and counted', async () => {
  const fake = starts(() => 'serves');
  const kept = keep({ name: 'relay-1', kind: 'relay', start: fake.start });
  await fake.asked(1);
  assert.deepEqual([kept.state, kept.pid, kept.restarts], ['running', 1_001, 0]);
  fake.lives[0]!.end();
  await fake.asked(2);
  assert.deepEqual([kept.state, kept.pid, kept.restarts], ['running', 1_002, 1]);
  await kept.leaveAlone();
});

test('a start that fails is tried again, says why, and is forgotten when one succeeds', async () => {
  const fake = starts((n) => (n < 3 ? 'fails' : 'serves'));
  const kept = keep({ name: 'relay-1', kind: 'relay', start: fake.start });
  await fake.asked(2);
  assert.deepEqual([kept.state, kept.trouble], ['starting', 'start 2 fails']);
  await fake.asked(3);
  assert.deepEqual([kept.state, kept.trouble, kept.restarts], ['running', undefined, 2]);
  await kept.leaveAlone();
});

test('left alone, it starts nothing more', async () => {
  const fake = starts(() => 'serves');
  const kept = keep({ name: 'relay-1', kind: 'relay', start: fake.start });
  await fake.asked(1);
  await kept.leaveAlone();
  fake.lives[0]!.end();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([kept.state, kept.restarts, fake.lives.length], ['stopped', 0, 1]);
});
