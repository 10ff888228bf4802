import assert from 'node:assert/strict';
import { test } from 'node:test';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Intent } from '../idempotency/intent.ts';
import { createQueue, queueDefaults, type Entry, type QueueSettings } from './group-queue.ts';
import { edgeDefaults, type Reply } from './reply.ts';

const intent = (key: string): Intent => ({
  principal: 'p',
  operation: 'o',
  key,
  requestHash: '00',
  hashVersion: 1,
});

const done: Reply = {
  outcome: 'answered',
  answer: { code: 200, headers: null, body: null, version: 1 },
  replayed: false,
};

interface Running {
  batch: readonly Entry<string>[];
  finish(): void;
}

function queueOf(options: Partial<QueueSettings<string>>) {
  const begun: Running[] = [];
  const settings = { ...edgeDefaults, ...queueDefaults, ...options } as QueueSettings<string>;
  const queue = createQueue<string>(settings, async (batch) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    begun.push({ batch, finish: resolve });
    await promise;
    return batch.map(() => done);
  });
  const keys = (): string[][] => begun.map(({ batch }) => batch.map(({ command }) => command));
  return { add: async (key: string) => queue.add(intent(key), key), begun, keys };
}

const turn = async (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('without a pause a lane that becomes free takes what has gathered', async () => {
  const { add, begun, keys } = queueOf({});
  const first = add('a');
  await turn();
  const others = [add('b'), add('c')];
  begun[0]!.finish();
  await first;
  await turn();
  await turn();
  assert.deepEqual(keys(), [['a'], ['b', 'c']]);
  begun[1]!.finish();
  await Promise.all(others);
});

test('with one, a request alone goes at once, the next batch waits, and a whole one does not', async (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const { add, begun, keys } = queueOf({ batchEveryMs: 60_000, maxBatch: 3 });
  const first = add('a');
  await turn();
  assert.deepEqual(keys(), [['a']]);
  begun[0]!.finish();
  await first;
  const second = add('b');
  await turn();
  assert.deepEqual(keys(), [['a']], 'not before its time');
  context.mock.timers.tick(60_000);
  await turn();
  assert.deepEqual(keys(), [['a'], ['b']]);
  begun[1]!.finish();
  await second;
  const whole = [add('c'), add('d')];
  await turn();
  assert.equal(begun.length, 2);
  whole.push(add('e'), add('f'));
  await turn();
  assert.deepEqual(keys().slice(2), [['c', 'd', 'e']]);
  begun[2]!.finish();
  await Promise.all(whole.slice(0, 3));
  assert.equal(begun.length, 3);
  context.mock.timers.tick(60_000);
  await turn();
  begun[3]!.finish();
  await Promise.all(whole);
});

test('an equal key joins the one that waits or is under way, in whichever lane', async () => {
  const { add, begun, keys } = queueOf({ lanes: 2, maxBatch: 1 });
  const all = [add('a'), add('b')];
  await turn();
  all.push(add('a'), add('b'), add('c'), add('c'));
  await turn();
  assert.deepEqual(keys(), [['a'], ['b']]);
  for (const { finish } of begun) finish();
  await Promise.all(all.slice(0, 4));
  await turn();
  assert.deepEqual(keys().slice(2), [['c']]);
  begun[2]!.finish();
  await Promise.all(all);
});

test('what a batch has held does not grow old with those that follow', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as (options?: { type: 'minor' }) => void;
  const oldBytes = (): number =>
    getHeapSpaceStatistics().find(({ space_name }) => space_name === 'old_space')!.space_used_size;
  const settings = { ...edgeDefaults, ...queueDefaults } as QueueSettings<number[]>;
  const queue = createQueue<number[]>(settings, async (batch) => {
    await turn();
    return batch.map(() => done);
  });
  const batches = async (count: number): Promise<void> => {
    for (let n = 0; n < count; n += 1) {
      // Some are under way whenever others come.
      const sent = Array.from({ length: 20 }, (_, m) =>
        queue.add(
          intent(`${n}-${m}`),
          Array.from({ length: 500 }, () => n),
        ),
      );
      if (n % 10 === 0) collect({ type: 'minor' });
      await sent[0];
    }
  };
  await batches(50);
  collect();
  const before = oldBytes();
  await batches(500);
  const grown = oldBytes() - before;
  const allocated = 500 * 20 * 500 * 8;
  assert.ok(grown < 0.05 * allocated, `${Math.round(grown / 1e6)} MB of ${allocated / 1e6} MB have grown old`);
});
