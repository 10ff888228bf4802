import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { sends } from '../proxy/fault.ts';
import type { Action } from '../supervisor/traps.ts';
import { relayTrial, type Stage } from './relay-trial.ts';
import { openRelayWorld, times } from './relay-world.ts';
import { append } from './writers.ts';
import { points as places } from './system/places.ts';

const world = await openRelayWorld();
after(async () => world.close());

/** What a batch passes, in this order. */
const points = places['relay']!;

test('a batch passes these points, and no others', async () => {
  const from = world.lab.hits.length;
  const { duplicates } = await relayTrial(world, async ({ start }) => {
    await start('quiet');
    return async () => {};
  });
  assert.deepEqual(new Set(world.lab.hits.slice(from).map(({ point }) => point)), new Set(points));
  assert.equal(duplicates, 0, 'nothing happened, so nothing is published twice');
});

/** Where it is dead nobody knows whether its last batch arrived, so that comes again; before, none of it was sent. */
const sentBy = new Set(['relay:sending', 'relay:acknowledged', 'source:advance-sent']);

for (const point of points) {
  test(`SIGKILL at the second ${point}`, async () => {
    const { duplicates } = await relayTrial(world, async ({ start }) => {
      const trap = world.lab.at({ role: 'a', point, hit: 2 }, 'kill');
      const relay = await start('a');
      return async () => {
        await trap.fired();
        assert.deepEqual(await relay.exited, { code: null, signal: 'SIGKILL' });
        await start('successor');
      };
    });
    if (point === 'relay:acknowledged')
      assert.ok(duplicates > 0, 'what was acknowledged and not written down comes again');
    if (!sentBy.has(point)) assert.equal(duplicates, 0);
  });
}

test('SIGKILL when a part is acknowledged, because one of the topics is not there; it is created afterwards', async () => {
  const missing = world.newName();
  const isMissing = (aggregate: string): boolean => aggregate.endsWith('-5');
  await relayTrial(
    world,
    async ({ start }) => {
      const trap = world.lab.at({ role: 'a', point: 'relay:part-acknowledged', hit: 2 }, 'kill');
      const relay = await start('a');
      return async () => {
        await trap.fired();
        await relay.exited;
        await start('successor');
        await world.lab.reached({ role: 'successor', point: 'relay:part-acknowledged', hit: 2 });
        await world.admin.createTopic(missing, { partitions: 3 });
      };
    },
    { moreTopics: [missing], topicOf: (aggregate, { topic }) => (isMissing(aggregate) ? missing : topic) },
  );
});

for (const [what, action] of [
  ['SIGKILL', 'kill'],
  ['nothing', 'hold'],
] satisfies [string, Action][]) {
  test(`a record that is too large parks its key, and ${what} happens at the moment it is kept aside`, async () => {
    let stage: Stage | undefined;
    const trial = relayTrial(world, async (given) => {
      stage = given;
      const trap = world.lab.at({ role: 'a', point: 'source:parked', hit: 1 }, action);
      const relay = await given.start('a');
      await append(world.database, given.topic, `${given.topic}-large`, { version: 1, text: 'x'.repeat(1_200_000) });
      await append(world.database, given.topic, `${given.topic}-large`, { version: 2 });
      return async () => {
        await trap.fired();
        trap.release();
        if (action === 'hold') return;
        await relay.exited;
        await given.start('successor');
      };
    });
    await trial;
    await append(world.database, stage!.topic, `${stage!.topic}-large`, { version: 3 });
    await relayTrial(world, async ({ start }) => {
      await start('later');
      return async () => {};
    });
    const { rows } = await world.database.query<{ version: number; reason: string }>(
      `SELECT (convert_from(payload, 'utf8')::json ->> 'version')::int AS version, reason
       FROM twiceproof.relay_parked WHERE aggregate_id = $1 ORDER BY seq`,
      [`${stage!.topic}-large`],
    );
    assert.deepEqual(
      rows.map(({ version }) => version),
      [1, 2, 3],
    );
    assert.match(rows[0]!.reason, /TP_RECORD_TOO_LARGE/);
  });
}

// The second publishes when its heir is long past that batch: what comes late is a repetition, never the first of its key.
for (const [what, point] of [
  ['with a batch acknowledged', 'relay:acknowledged'],
  ['before it sends', 'relay:before-send'],
] as const) {
  test(`the zombie: stopped ${what}, replaced when its time is over, and woken again`, async () => {
    const { duplicates } = await relayTrial(world, async ({ start }) => {
      const trap = world.lab.at({ role: 'a', point, hit: 2 }, 'stop');
      await start('a');
      const heir = await start('b');
      return async () => {
        await trap.fired();
        await heldShardIsFree();
        await world.lab.reached({ role: 'b', point: 'relay:advanced', hit: advancesOf(heir.pid) + 2 });
        trap.release();
        await world.lab.reached({ role: 'a', point: 'relay:read', hit: 3 });
      };
    });
    assert.ok(duplicates > 0);
  });
}

function advancesOf(relay: number): number {
  return world.lab.hits.findLast(({ pid, point }) => pid === relay && point === 'relay:advanced')?.hit ?? 0;
}

test('the zombie: stopped while the server is sending it a page, when no timeout of the server comes', async () => {
  await relayTrial(world, async ({ start, topic }) => {
    // 50 rows of 200 kB: more than the sockets between them can hold.
    for (let n = 1; n <= 100; n += 1) {
      await append(world.database, topic, `${topic}-heavy-${n % 10}`, { version: n, text: 'x'.repeat(200_000) });
    }
    const trap = world.lab.at({ role: 'a', point: 'source:reading', hit: 1 }, 'stop');
    const starting = start('a');
    await trap.fired();
    const other = await start('b');
    return async () => {
      await heldShardIsFree();
      await other.printed(/another relay stood still/); // It was the watchdog, and not a timeout of the server.
      trap.release();
      await starting;
    };
  });
});

/** A relay that runs may hold one at any moment: none is held by a transaction that is older than it may be. */
async function heldShardIsFree(): Promise<void> {
  const deadline = performance.now() + 4 * times.watchdogMs;
  const oldMs = times.idleTimeoutMs - 500;
  while ((await oldestTransactionMs()) <= oldMs) {
    assert.ok(performance.now() < deadline, 'a transaction of the relay that is stopped should grow old');
    await delay(20);
  }
  while ((await oldestTransactionMs()) >= oldMs) {
    assert.ok(performance.now() < deadline, 'nobody has ended the transaction of the relay that is stopped');
    await delay(20);
  }
}

async function oldestTransactionMs(): Promise<number> {
  const { rows } = await world.database.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM clock_timestamp() - min(xact_start)) * 1000)::int AS ms FROM pg_stat_activity
     WHERE application_name = 'twiceproof-relay' AND xact_start IS NOT NULL`,
  );
  return rows[0]?.ms ?? 0;
}

test('three relays at once, one with two lanes, and one that is killed again and again', async () => {
  await relayTrial(
    world,
    async ({ start }) => {
      let victim = await start('one-0');
      const others = [await start('two'), await start('three', { args: ['--lanes=2'] })];
      return async () => {
        for (let n = 1; n <= 3; n += 1) {
          await world.lab.reached({ role: victim.role, point: 'relay:read' });
          await victim.kill();
          victim = await start(`one-${n}`);
        }
        for (const { role } of others) await world.lab.reached({ role, point: 'relay:advanced' });
      };
    },
    { transactions: 600 },
  );
});

test('Postgres is killed and restarted', async () => {
  await relayTrial(world, async ({ start }) => {
    const trap = world.lab.at({ role: 'a', point: 'relay:acknowledged', hit: 2 }, 'hold');
    await start('a');
    return async () => {
      await trap.fired();
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
  test(`the advance is sent, and the connection is cut ${when}`, async () => {
    const before = world.proxy.counts.fired[kind];
    const isSent = sends('UPDATE "twiceproof".relay_cursor');
    let seen = 0;
    await relayTrial(world, async ({ start }) => {
      world.proxy.all({ kind, when: (bytes) => isSent(bytes) && [2, 4].includes((seen += 1)) });
      await start('a', { throughProxy: true });
      return async () => world.proxy.fired(kind, { times: before + 2 });
    }).finally(() => world.proxy.heal());
  });
}

test('a broker is killed, and comes back', async () => {
  await relayTrial(
    world,
    async ({ start }) => {
      await start('a');
      return async () => {
        await world.lab.reached({ role: 'a', point: 'relay:advanced', hit: 2 });
        const [broker] = world.kafka.brokers;
        await broker!.kill();
        await broker!.start();
      };
    },
    { transactions: 400 },
  );
});

test('the leaders move, broker by broker', async () => {
  await relayTrial(
    world,
    async ({ start, topic }) => {
      await start('a');
      const before = await world.admin.leaders(topic);
      return async () => {
        const led = new Set<string>();
        for (const broker of world.kafka.brokers.slice(1)) {
          await broker.stop();
          for (const [partition, leader] of (await world.admin.leaders(topic)).entries()) {
            if (leader !== before[partition]) led.add(`${partition} by ${leader}`);
          }
          await broker.start();
        }
        assert.ok(led.size > 0, `all partitions stayed where they were: ${before.join()}`);
      };
    },
    { transactions: 400 },
  );
});
