import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { sends } from '../proxy/fault.ts';
import type { Attempt } from './asked.ts';
import type { Fleet } from './fleet.ts';
import { askHttp } from './http-door.ts';
import { storm } from './storm.ts';
import { intents, trial, type Subject } from './trial.ts';
import { judge } from './verdict.ts';
import { openWorld } from './world.ts';

const world = await openWorld();
after(async () => world.close());

/** The limit on waiting is 5 s, and twice that for a transaction that stands still; a busy machine adds to it. */
const refusedWithinMs = 9_000;
const endedByServerWithinMs = 20_000;

type Meanwhile = (fleet: Fleet, askB: () => Promise<Attempt[]>) => Promise<void>;

/** What happens before A goes on, which stands still with the key in its hands. */
const ends: Record<string, Meanwhile> = {
  'A goes on': async () => {},
  'A is killed': async (fleet) => {
    (await fleet.at('a')).process.signal('SIGKILL');
    assert.deepEqual(await fleet.replaceA(), { code: null, signal: 'SIGKILL' });
  },
  'the server gives up on A, B does it, and A goes on': async (_, askB) => {
    await untilNoneStandsStill();
    for (const attempt of await askB()) assert.ok('answer' in attempt, JSON.stringify(attempt));
  },
};

async function untilNoneStandsStill(): Promise<void> {
  const deadline = performance.now() + endedByServerWithinMs;
  for (;;) {
    const { rowCount } = await world.database.query(
      "SELECT 1 FROM pg_stat_activity WHERE application_name = 'orders' AND state = 'idle in transaction'",
    );
    if (rowCount === 0) return;
    assert.ok(performance.now() < deadline, 'the server has ended no transaction');
    await delay(50);
  }
}

/** A is stopped at its next `point` with four clients waiting; `meanwhile` may ask B for the same. */
async function whileFrozen({ shape, operation }: Subject, point: string, meanwhile: Meanwhile): Promise<void> {
  const fleet = world.fleets[shape];
  const tenant = world.newTenant();
  const { before, asked } = await intents(fleet, tenant, operation);
  const [one] = asked as [(typeof asked)[0]];
  const trap = await fleet.trap(point, 1, 'stop');
  const b = await fleet.at('b');
  const askB = async (): Promise<Attempt[]> => Promise.all([askHttp(b.http, one), b.grpc.ask(one)]);
  const act = async (): Promise<void> => {
    await trap.fired();
    await meanwhile(fleet, askB).finally(() => trap.release());
  };
  const [told] = await Promise.all([storm(fleet, [one], { perKey: 4, onlyToA: 1 }), act()]);
  const repeated = await storm(fleet, [one], { perKey: 4 });
  await judge(world.database, tenant, [...before, ...told, ...repeated]);
}

for (const subject of [
  { shape: 'handler', operation: 'create' },
  { shape: 'group', operation: 'setStatus' },
] satisfies Subject[]) {
  for (const [how, end] of Object.entries(ends)) {
    test(`${subject.shape} ${subject.operation}: A stands still with the key, B says when to come again; then ${how}`, async () => {
      await whileFrozen(subject, 'edge:claimed', async (fleet, askB) => {
        const began = performance.now();
        const [http, grpc] = (await askB()).map((attempt) => ('failure' in attempt ? attempt.failure : 'an answer'));
        assert.ok(performance.now() - began < refusedWithinMs, `it took ${performance.now() - began} ms`);
        assert.match(http!, /^HTTP\/1\.1 503 .*\r\nretry-after: [1-9]\d*\r\n.*problem:busy"/s);
        assert.match(grpc!, /"code":14,.*"twiceproof-problem":"busy".*"grpc-retry-pushback-ms":"\d+"/);
        await end(fleet, askB);
      });
    });
  }
}

test('group create: A stands still with its statement sent, and B has the answer at once', async () => {
  await whileFrozen({ shape: 'group', operation: 'create' }, 'edge:statement-sent', async (_, askB) => {
    for (const attempt of await askB()) assert.ok('answer' in attempt, JSON.stringify(attempt));
  });
});

/** Once: whoever is hit waits for 15 s, and every client must be answered within 30. */
const silences = {
  'with it both directions fall silent': { kind: 'black-hole' },
  'it is carried out, and its answer never comes': { kind: 'one-way', lost: 'to-client' },
} as const;

for (const { shape, operation, what, text } of [
  { shape: 'handler', operation: 'create', what: 'COMMIT', text: 'COMMIT\0' },
  { shape: 'group', operation: 'setStatus', what: 'COMMIT', text: 'COMMIT\0' },
  { shape: 'group', operation: 'create', what: 'the statement', text: 'twiceproof_' },
] satisfies (Subject & { what: string; text: string })[]) {
  for (const [how, silence] of Object.entries(silences)) {
    test(`${shape} ${operation}: ${what} is sent, and ${how}; nothing is closed`, async () => {
      const { proxy } = world;
      const before = proxy.counts.fired[silence.kind];
      const isSent = sends(text);
      let seen = 0;
      await trial(world, { shape, operation }, async () => {
        proxy.all({ ...silence, when: (bytes) => isSent(bytes) && (seen += 1) === 1 });
        return async () => proxy.fired(silence.kind, { times: before + 1 });
      }).finally(() => proxy.heal());
    });
  }
}
