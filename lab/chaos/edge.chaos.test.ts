import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { sends } from '../proxy/fault.ts';
import type { Shape } from './fleet.ts';
import { storm, type Told } from './storm.ts';
import { creations, trial, type Subject } from './trial.ts';
import { judge } from './verdict.ts';
import { openWorld } from './world.ts';

const world = await openWorld();
after(async () => world.close());

const inATransaction = [
  'transaction:before-begin',
  'edge:before-claim',
  'edge:claimed',
  'outbox:appended',
  'edge:handled',
  'edge:answer-stored',
  'transaction:commit-about-to-be-sent',
  'transaction:commit-sent',
];
/** The statement is a transaction by itself: what is before it is before BEGIN, and when it is sent so is its COMMIT. */
const inAStatement = ['edge:before-claim', 'edge:statement-sent'];
const atTheDoors = ['http:committed', 'http:half-written', 'grpc:committed'];

/** `nth` comes for sure: for each key that only A was asked for, or for each batch of those; all creations may be one batch. */
const subjects: (Subject & { points: string[]; nth: number })[] = [
  { shape: 'handler', operation: 'create', points: inATransaction, nth: 3 },
  { shape: 'group', operation: 'setStatus', points: inATransaction, nth: 3 },
  { shape: 'group', operation: 'create', points: inAStatement, nth: 1 },
];

function failuresOf(told: readonly Told[]): number {
  return told.reduce((sum, { failures }) => sum + failures.length, 0);
}

for (const shape of ['group', 'handler'] satisfies Shape[]) {
  test(`${shape}: 64 first requests at once with one key, over both doors, to two processes, for each of 20 keys`, async () => {
    const tenant = world.newTenant();
    const told: Told[] = [];
    for (const one of creations(tenant, 20)) {
      const same = await storm(world.fleets[shape], [one], { perKey: 64 });
      assert.equal(same.length, 64);
      told.push(...same);
    }
    assert.equal(failuresOf(told), 0, 'nobody had to ask twice');
    await judge(world.database, tenant, told);
  });
}

for (const { shape, operation, points, nth } of subjects) {
  const name = `${shape} ${operation}`;

  test(`${name}: these are the points that a request passes, and there are no others`, async () => {
    let from = 0;
    await trial(world, { shape, operation }, async () => {
      from = world.lab.hits.length;
      return async () => {};
    });
    // Orders looks after its tables too, in transactions that are no request's.
    const isOfARequest = (point: string): boolean => points.includes(point) || !point.startsWith('transaction:');
    const passed = world.lab.hits.slice(from).map(({ point }) => point);
    assert.deepEqual(new Set(passed.filter(isOfARequest)), new Set([...points, ...atTheDoors]));
  });

  for (const [point, count] of [
    ...points.map((each) => [each, nth] as const),
    ...atTheDoors.map((each) => [each, 5] as const),
  ]) {
    test(`${name}: SIGKILL at the ${count}. ${point}`, async () => {
      const told = await trial(world, { shape, operation }, async (fleet) => {
        const trap = await fleet.trap(point, count, 'kill');
        return async () => {
          await trap.fired().finally(() => trap.release());
          assert.deepEqual(await fleet.replaceA(), { code: null, signal: 'SIGKILL' });
        };
      });
      assert.ok(failuresOf(told) > 0, 'somebody was left without an answer');
    });
  }
}

/** Held there, so that it has come just so far when the server dies. */
const serverDiesAt: (Subject & { point: string; nth: number })[] = [
  { shape: 'handler', operation: 'create', point: 'edge:claimed', nth: 3 },
  { shape: 'handler', operation: 'create', point: 'transaction:commit-about-to-be-sent', nth: 3 },
  { shape: 'handler', operation: 'create', point: 'transaction:commit-sent', nth: 3 },
  { shape: 'group', operation: 'setStatus', point: 'transaction:commit-about-to-be-sent', nth: 3 },
  { shape: 'group', operation: 'create', point: 'edge:statement-sent', nth: 1 },
];

for (const { shape, operation, point, nth } of serverDiesAt) {
  test(`${shape} ${operation}: Postgres is killed and restarted while A is at the ${nth}. ${point}`, async () => {
    await trial(world, { shape, operation }, async (fleet) => {
      const trap = await fleet.trap(point, nth, 'hold');
      const killServer = async (): Promise<void> => {
        await trap.fired();
        await world.server.kill();
        assert.equal(world.server.running, false);
      };
      return async () => {
        await killServer().finally(() => trap.release());
        await world.server.start();
      };
    });
  });
}

/** What A sends. The statement is known by its name, which goes with each execution; its text goes only with the first. */
const cutAt: (Subject & { what: string; text: string; cutTimes: number[] })[] = [
  // Two in a row, so that a second try is hit as well; and an end to it, since every client must be answered.
  { shape: 'handler', operation: 'create', what: 'COMMIT', text: 'COMMIT\0', cutTimes: [2, 3, 5] },
  { shape: 'group', operation: 'setStatus', what: 'COMMIT', text: 'COMMIT\0', cutTimes: [2, 3, 5] },
  { shape: 'group', operation: 'create', what: 'the statement', text: 'twiceproof_', cutTimes: [1, 2] },
];
const cuts = { 'lose-answer': 'after it was carried out, before its answer came', cut: 'before it arrived' } as const;

for (const { shape, operation, what, text, cutTimes } of cutAt) {
  for (const [kind, when] of Object.entries(cuts) as [keyof typeof cuts, string][]) {
    test(`${shape} ${operation}: ${what} is sent, and the connection is cut ${when}`, async () => {
      const { proxy } = world;
      const before = proxy.counts.fired[kind];
      const isSent = sends(text);
      let seen = 0;
      await trial(world, { shape, operation }, async () => {
        proxy.all({ kind, when: (bytes) => isSent(bytes) && cutTimes.includes((seen += 1)) });
        return async () => proxy.fired(kind, { times: before + 2 });
      }).finally(() => proxy.heal());
    });
  }
}

test('told to stop after all that, each process ends by itself', async () => {
  for (const fleet of Object.values(world.fleets)) {
    for (const { process } of await Promise.all([fleet.at('a'), fleet.at('b')])) {
      process.signal('SIGTERM');
      assert.deepEqual(await process.exited, { code: 0, signal: null }, process.describe());
    }
  }
});
