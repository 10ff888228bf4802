import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, describe, it, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { sends } from '../proxy/fault.ts';
import type { Supervised } from '../supervisor/process.ts';
import { writeOrders } from './order-events.ts';
import { append } from './writers.ts';
import { inboxState, judgeInbox, paymentsTrial, type PaymentsStage } from './payments-trial.ts';
import { openRelayWorld } from './relay-world.ts';

const world = await openRelayWorld();
after(async () => world.close());
let relay = await world.startRelay('relay');
await relay.firstJsonLine(20_000);

/** Where a batch passes, and the hit at which the orders of the trial are under way. */
const points: [point: string, hit: number][] = [
  ['consumer:assigned', 1],
  ['consumer:fetched', 2],
  ['inbox:asking', 2],
  ['consumer:accepted', 2],
  ['consumer:handling', 2],
  ['consumer:handled', 2],
  ['consumer:before-commit', 2],
  // Others commit too, when the program starts.
  ['transaction:commit-sent', 20],
  ['consumer:committed', 2],
  ['transport:offsets-sent', 1],
];

// Side by side, because most of the time is spent waiting until the group believes that a member is dead.
describe('SIGKILL', { concurrency: 4 }, () => {
  for (const [point, hit] of points) {
    it(`at ${point}, hit ${hit}`, async () => {
      await paymentsTrial(world, async ({ begin, start, role }) => {
        const trap = world.lab.at({ role: role('a'), point, hit }, 'kill');
        const victim = await begin('a');
        return async () => {
          await trap.fired(60_000);
          assert.deepEqual(await victim.exited, { code: null, signal: 'SIGKILL' });
          await start('successor');
        };
      });
    });
  }

  it('on revoke, when another joins', async () => {
    await paymentsTrial(world, async ({ start, role, processed }) => {
      const trap = world.lab.at({ role: role('a'), point: 'consumer:revoked' }, 'kill');
      const victim = await start('a');
      return async () => {
        await processed(1);
        await start('b');
        await trap.fired(60_000);
        await victim.exited;
      };
    });
  });

  it('when a message is held: it is held once, its key waits, and all others go on', async () => {
    await paymentsTrial(
      world,
      async ({ start, role, topic }) => {
        const trap = world.lab.at({ role: role('a'), point: 'consumer:held' }, 'kill');
        const victim = await start('a');
        const poison = 'ffffffff-0000-4000-8000-000000000001';
        await append(world.database, topic, poison, { order_id: poison, version: 1 }, 'order.created');
        const behind = { order_id: poison, status: 'paid', version: 2 };
        await append(world.database, topic, poison, behind, 'order.status_changed');
        return async () => {
          await trap.fired(60_000);
          await victim.exited;
          await start('successor');
        };
      },
      { held: 2 },
    );
  });
});

// One after the other from here on: all payments are one consumer, so any of them would do what an operator asks for, and
// keep the inbox.
for (const point of ['consumer:redrive-taken', 'consumer:redriven']) {
  test(`SIGKILL at ${point}: what is redriven has one effect, in its order`, async () => {
    await paymentsTrial(world, async ({ start, role, heldAsLate, askToRedrive }) => {
      // Some are done by then.
      const trap = world.lab.at({ role: role('a'), point, hit: 2 }, 'kill');
      const victim = await start('a');
      return async () => {
        await heldAsLate(60);
        askToRedrive();
        await trap.fired(60_000);
        assert.deepEqual(await victim.exited, { code: null, signal: 'SIGKILL' });
        await start('successor');
      };
    });
  });
}

test('SIGKILL at inbox:partitions-made: the successor goes on where they end, and all is accepted', async () => {
  await paymentsTrial(world, async ({ begin, start, role }) => {
    await openInbox(start);
    const lost = await takeLastPartition();
    const trap = world.lab.at({ role: role('a'), point: 'inbox:partitions-made' }, 'kill');
    const victim = await begin('a');
    return async () => {
      await trap.fired(60_000);
      await victim.exited;
      const { ceiling, partitions } = await inboxState(world);
      assert.deepEqual([partitions.at(-1)!.toMs, ceiling], [lost.toMs, lost.fromMs], 'made, and not in use');
      await start('successor');
      await judgeInbox(world);
    };
  });
});

/** With all partitions that it has by default; nobody keeps it afterwards. */
async function openInbox(start: PaymentsStage['start']): Promise<void> {
  const opener = await start('opener');
  opener.signal('SIGTERM');
  await opener.exited;
}

/** As if so much time had passed. Nothing is in it: it is of a time to come. */
async function takeLastPartition(): Promise<{ fromMs: number; toMs: number }> {
  const last = (await inboxState(world)).partitions.at(-1)!;
  const name = `twiceproof."inbox_${last.fromMs}_${last.toMs}"`;
  const time = last.fromMs.toString(16).padStart(12, '0');
  await world.database.query(`ALTER TABLE twiceproof.inbox DETACH PARTITION ${name}; DROP TABLE ${name};
    UPDATE twiceproof.inbox_bounds SET ceiling = '${time.slice(0, 8)}-${time.slice(8)}-0000-0000-000000000000'`);
  return last;
}

test('SIGKILL at inbox:floor-raised, then at inbox:partition-dropped: the last drops the rest, and nothing is accepted there again', async () => {
  await paymentsTrial(world, async ({ begin, start, role, heldAsLate, askToRedrive }) => {
    await openInbox(start);
    const before = await inboxState(world);
    const args = ['--dedup-ttl=3d', '--unsafe-ttl', '--hold-late'];
    const raised = world.lab.at({ role: role('a'), point: 'inbox:floor-raised' }, 'kill');
    const dropped = world.lab.at({ role: role('b'), point: 'inbox:partition-dropped', hit: 2 }, 'kill');
    const first = await begin('a', { args });
    return async () => {
      await raised.fired(60_000);
      await first.exited;
      const { floor, partitions } = await inboxState(world);
      assert.ok(floor > before.floor, 'the floor is raised');
      assert.deepEqual(partitions, before.partitions, 'and nothing is dropped yet');
      const second = await begin('b', { args });
      await dropped.fired(60_000);
      await second.exited;
      const left = (await inboxState(world)).partitions;
      assert.ok(left.length < partitions.length && left.some(({ toMs }) => toMs <= floor), 'some of them are dropped');
      await start('successor', { args });
      await judgeInbox(world);
      await heldAsLate(1);
      askToRedrive();
    };
  });
});

// Both shares at once, since here too most of the time is spent waiting for the group; one death of the relay is for both.
test('the four causes of duplicates together, with 5 % and with 30 % injected on top', async () => {
  const shares = [0.05, 0.3];
  const allReady = Promise.withResolvers<void>();
  let ready = 0;
  const relayDies = allReady.promise.then(killRelay);
  await Promise.all(
    shares.map(async (share) =>
      fourCauses(share, relayDies, async () => {
        if ((ready += 1) === shares.length) allReady.resolve();
        await allReady.promise;
      }),
    ),
  );
});

/** With a batch acknowledged and not written down; another takes its place. */
async function killRelay(): Promise<void> {
  await world.lab.at({ role: 'relay', point: 'relay:acknowledged' }, 'kill').fired(60_000);
  await relay.exited;
  relay = await world.startRelay('relay');
  await relay.firstJsonLine(20_000);
}

async function fourCauses(
  share: number,
  relayDies: Promise<void>,
  everybodyIsReady: () => Promise<void>,
): Promise<void> {
  const injecting = { args: [`--dup-rate=${share}`, '--seed=1', '--workers=2'] };
  await paymentsTrial(
    world,
    async ({ start, role, topic, processed }) => {
      const committed = world.lab.at({ role: role('a'), point: 'consumer:committed', hit: 3 }, 'kill');
      await start('a', injecting);
      const stormy = await start('b', injecting);
      await everybodyIsReady();
      return async () => {
        await relayDies;
        await committed.fired(60_000);
        // A storm: members come, freeze for longer than the group believes in them, and go.
        for (let n = 0; n < 2; n += 1) {
          const guest = await start(`guest-${n}`, injecting);
          await world.lab.reached({ role: role(`guest-${n}`), point: 'consumer:assigned' });
          guest.signal('SIGTERM');
          await guest.exited;
        }
        const assigned = hitsOf(role('b'), 'consumer:assigned');
        stormy.freeze();
        await delay(sessionMs + 1_500);
        const heir = await start('heir', injecting);
        await world.lab.reached({ role: role('heir'), point: 'consumer:assigned' });
        stormy.thaw();
        await world.lab.reached({ role: role('b'), point: 'consumer:assigned', hit: assigned + 1 });
        await processed(600);
        for (const member of [stormy, heir]) {
          member.signal('SIGTERM');
          await member.exited;
        }
        await world.admin.rewindGroup(topic, topic, 3);
        await replayed(await start('after-the-seek', injecting), 500);
      };
    },
    { orders: 400 },
  );
}

/** For so long the group believes in a member that says nothing. */
const sessionMs = 6_000;

function hitsOf(role: string, point: string): number {
  return world.lab.hits.findLast((hit) => hit.role === role && hit.point === point)?.hit ?? 0;
}

test('SIGKILL between COMMIT and the offset: what the broker was not told comes again, and is a duplicate', async () => {
  await paymentsTrial(world, async ({ start, role, topic }) => {
    const victim = await start('a');
    return async () => {
      // The broker is told once a second. So it is behind by what is committed in the next moment.
      await world.lab.reached({ role: role('a'), point: 'transport:offsets-sent' });
      const hit = hitsOf(role('a'), 'consumer:committed') + 1;
      const trap = world.lab.at({ role: role('a'), point: 'consumer:committed', hit }, 'kill');
      await writeOrders({ database: world.database, topic, orders: 50, before: 1_000 });
      await trap.fired(60_000);
      await victim.exited;
      await replayed(await start('successor'), 1);
    };
  });
});

/** What was processed before has come again, and was a duplicate. */
async function replayed(payments: Supervised, atLeast: number): Promise<void> {
  const { admin } = await payments.firstJsonLine<{ admin: string }>();
  const deadline = performance.now() + 60_000;
  for (;;) {
    const page = await (await fetch(`${admin}/metrics`)).text();
    const found = /^payments_messages_total\{verdict="duplicate"\} (\d+)$/m.exec(page)?.[1];
    if (Number(found ?? 0) >= atLeast) return;
    assert.ok(performance.now() < deadline, `${found ?? 'no'} duplicates came, and not ${atLeast}`);
    await delay(50);
  }
}

test('Postgres is killed and restarted', async () => {
  await paymentsTrial(world, async ({ start, role }) => {
    const trap = world.lab.at({ role: role('a'), point: 'consumer:handled', hit: 3 }, 'hold');
    await start('a');
    return async () => {
      await trap.fired(60_000);
      await world.server.kill();
      trap.release();
      await world.server.start();
    };
  });
});

for (const [kind, when] of [
  ['lose-answer', 'after it was carried out'],
  ['cut', 'before it arrived'],
] as const) {
  test(`COMMIT is sent, and the connection is cut ${when}`, async () => {
    const before = world.proxy.counts.fired[kind];
    // With the end of its text: BEGIN ISOLATION LEVEL READ COMMITTED is none.
    const isSent = sends('COMMIT\0');
    let seen = 0;
    await paymentsTrial(world, async ({ start }) => {
      await start('a', { throughProxy: true });
      // Not while it starts: then nothing is under way that could be lost.
      world.proxy.all({ kind, when: (bytes) => isSent(bytes) && [3, 6].includes((seen += 1)) });
      return async () => world.proxy.fired(kind, { times: before + 2, timeoutMs: 60_000 });
    }).finally(() => world.proxy.heal());
  });
}

test('a broker is killed, and comes back', async () => {
  await paymentsTrial(world, async ({ start, processed }) => {
    await start('a');
    return async () => {
      await processed(50);
      const [broker] = world.kafka.brokers;
      await broker!.kill();
      await broker!.start();
    };
  });
});

/** What a death between the two writes does: orders whose charge is missing, and such that are charged more than once. */
const splits = [
  { transactions: 'two', order: 'inbox-first', lost: 1, doubled: 0 },
  { transactions: 'two', order: 'charge-first', lost: 0, doubled: 1 },
  { transactions: 'one', order: 'inbox-first', lost: 0, doubled: 0 },
  { transactions: 'one', order: 'charge-first', lost: 0, doubled: 0 },
];

test('the counter-example: charge and inbox in two transactions lose or double, in one they do neither', async () => {
  await world.lab.start(textbook('prepare', ['prepare'])).then(async ({ exited }) => exited);
  await Promise.all(splits.map(dieBetween));
});

async function dieBetween({ transactions, order, ...expected }: (typeof splits)[number]): Promise<void> {
  const topic = world.newName();
  await world.admin.createTopic(topic, { partitions: 1 });
  for (let n = 1; n <= 20; n += 1) {
    await append(world.database, topic, `${topic}-${n}`, { amount_cents: n }, 'order.created');
  }
  const names = [`--topic=${topic}`, `--group=${topic}`];
  const args = ['run', ...names, `--transactions=${transactions}`, `--effect-order=${order}`];
  const victim = await world.lab.start(textbook(`${topic}-a`, [...args, '--wait-at=5']));
  await victim.printed(/"between":true/, 30_000);
  await victim.kill();
  const successor = await world.lab.start(textbook(`${topic}-b`, args));
  await untilAllSeen(topic);
  // It finishes what it is at: the last one may have its inbox row and not its charge yet.
  successor.signal('SIGTERM');
  await successor.exited;
  assert.deepEqual(await countCharges(topic), expected, `${transactions} transactions, ${order}`);
}

function textbook(role: string, args: readonly string[]) {
  return {
    role,
    command: process.execPath,
    args: ['lab/baselines/consumer.ts', ...args],
    env: { DATABASE_URL: world.server.url, KAFKA_BROKERS: world.kafka.bootstrap },
    cwd: join(import.meta.dirname, '../..'),
  };
}

/** When every message has its inbox row. */
async function untilAllSeen(topic: string): Promise<void> {
  const deadline = performance.now() + 60_000;
  for (;;) {
    const { rowCount: unseen } = await world.database.query(
      'SELECT FROM twiceproof.outbox WHERE topic = $1 AND msg_id NOT IN (SELECT msg_id FROM textbook_inbox)',
      [topic],
    );
    if (unseen === 0) return;
    assert.ok(performance.now() < deadline, `${unseen} messages were not seen`);
    await delay(50);
  }
}

async function countCharges(topic: string): Promise<{ lost: number; doubled: number }> {
  const { rows } = await world.database.query<{ lost: number; doubled: number }>(
    `SELECT count(*) FILTER (WHERE times = 0)::int AS lost, count(*) FILTER (WHERE times > 1)::int AS doubled
     FROM (SELECT aggregate_id, count(charge_id) AS times FROM twiceproof.outbox
           LEFT JOIN textbook_charges ON order_id = aggregate_id WHERE topic = $1 GROUP BY aggregate_id) AS charged`,
    [topic],
  );
  return rows[0]!;
}
