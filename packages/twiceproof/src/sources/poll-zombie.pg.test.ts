/** Relays that stand still: their place is freed, and when they wake they can advance nothing. */
import assert from 'node:assert/strict';
import { after, test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import type { Source, SourceBatch } from '../source.ts';
import { uuidv7 } from '../uuid.ts';
import { publishingName } from './poll-statements.ts';
import { createPollSource } from './poll.ts';

const { url } = await testDatabase();
const relayName = 'relay';
const pool = openPool(relayName);
after(async () => pool.end());
await migrate(pool);

const times = { publishDeadlineMs: 300, idleTimeoutMs: 600, watchdogMs: 900 };
const patienceMs = 20_000;

function openPool(name: string): pg.Pool {
  const opened = new pg.Pool({ connectionString: url, application_name: name });
  opened.on('error', () => {});
  return opened;
}

async function append(text: string): Promise<void> {
  await pool.query(
    `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload)
     VALUES (0, 't', 'a', $1, 'said', $2)`,
    [uuidv7(), Buffer.from(text)],
  );
}

async function hold(t: TestContext, source: Source): Promise<SourceBatch> {
  const batch = await source.next({ maxMessages: 10, waitMs: patienceMs, signal: AbortSignal.timeout(patienceMs) });
  assert.ok(batch, 'a batch must come');
  // Should the test fail while it is held.
  t.after(async () => batch.abandon().catch(() => {}));
  return batch;
}

const textsOf = ({ messages }: SourceBatch): string[] => messages.map(({ payload }) => String(payload));

async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + patienceMs;
  while (!(await holds())) {
    assert.ok(performance.now() < deadline, `waited in vain until ${what}`);
    await delay(10);
  }
}

test('a relay that stands still while it holds a batch loses its place to the next, and cannot advance', async (t) => {
  const ended: number[] = [];
  const [zombie, heir] = [0, 1].map(() =>
    createPollSource({ pool, times, onStuckRelay: (pid) => ended.push(pid) }),
  ) as [Source, Source];
  await append('a1');
  const held = await hold(t, zombie);
  assert.equal(await heir.next({ maxMessages: 10, waitMs: 0, signal: AbortSignal.timeout(patienceMs) }), undefined);
  const taken = await hold(t, heir);
  assert.deepEqual(textsOf(taken), ['a1']);
  assert.deepEqual(ended, [], 'the server did it, by its own timeout');
  await assert.rejects(held.advance({ done: 1, parked: [] }));
  await taken.advance({ done: 1, parked: [] });
  await append('a2');
  const next = await hold(t, zombie);
  assert.deepEqual(textsOf(next), ['a2']);
  await next.advance({ done: 1, parked: [] });
});

/** A client that has stopped reading in the middle of a large page: the server waits for it, and no timeout of its own comes. */
async function openBlocked(
  t: TestContext,
  { name, locks, options = '' }: { name: string; locks: boolean; options?: string },
) {
  const client = new pg.Client({ connectionString: url, application_name: name, options });
  client.on('error', () => {});
  await client.connect();
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const { pid } = rows[0]!;
  await client.query('BEGIN');
  await client.query(`SET LOCAL idle_in_transaction_session_timeout = ${times.idleTimeoutMs}`);
  if (locks) await client.query('SELECT 1 FROM twiceproof.relay_cursor FOR NO KEY UPDATE');
  else await client.query('SELECT 1 FROM twiceproof.relay_cursor');
  const { stream } = (
    client as unknown as { connection: { stream: { pause(): void; resume(): void; destroy(): void } } }
  ).connection;
  t.after(() => stream.destroy());
  stream.pause();
  const reading = client.query("SELECT repeat('x', 1000) FROM generate_series(1, 100000)");
  const ended = reading.then(
    () => 'lives' as const,
    () => 'ended' as const,
  );
  const isAlive = async (): Promise<boolean> =>
    (await pool.query('SELECT 1 FROM pg_stat_activity WHERE pid = $1', [pid])).rowCount === 1;
  await until('the server waits for its client', async () => {
    const text = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'ClientWrite'";
    return (await pool.query(text, [pid])).rowCount === 1;
  });
  return {
    pid,
    isAlive,
    async close(): Promise<'lives' | 'ended'> {
      stream.resume();
      const how = await ended;
      await client.end();
      return how;
    },
  };
}

test('a relay whose server is stuck in sending is ended by the watchdog of another, and its shard goes on', async (t) => {
  const stuck = await openBlocked(t, { name: relayName, locks: true });
  const ended: number[] = [];
  const source = createPollSource({ pool, times, onStuckRelay: (pid) => ended.push(pid) });
  await append('b1');
  const batch = await hold(t, source);
  await batch.advance({ done: 1, parked: [] });
  assert.deepEqual(textsOf(batch), ['b1']);
  assert.deepEqual(ended, [stuck.pid]);
  assert.equal(await stuck.isAlive(), false);
  assert.equal(await stuck.close(), 'ended');
});

test('a command that publishes is ended likewise, when it stands still', async (t) => {
  const stuck = await openBlocked(t, { name: publishingName, locks: true });
  const source = createPollSource({ pool, times });
  await append('d1');
  const batch = await hold(t, source);
  await batch.advance({ done: 1, parked: [] });
  assert.equal(await stuck.close(), 'ended');
});

test('a watchdog that has taken a role sees others that have taken it', async (t) => {
  const role = `relay_${process.pid}_${Date.now()}`;
  await pool.query(`CREATE ROLE ${role}; GRANT USAGE ON SCHEMA twiceproof TO ${role};
    GRANT ALL ON ALL TABLES IN SCHEMA twiceproof TO ${role}`);
  t.after(async () => pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
  const options = `-c role=${role}`;
  const stuck = await openBlocked(t, { name: relayName, locks: true, options });
  const ofRole = new pg.Pool({ connectionString: url, application_name: relayName, options });
  ofRole.on('error', () => {});
  const ended: number[] = [];
  const source = createPollSource({ pool: ofRole, times, onStuckRelay: (pid) => ended.push(pid) });
  await append('c1');
  const batch = await hold(t, source);
  await batch.advance({ done: 1, parked: [] });
  assert.deepEqual(ended, [stuck.pid]);
  assert.equal(await stuck.close(), 'ended');
  const { rows } = await ofRole.query<{ user: string }>('SELECT current_user AS user');
  assert.equal(rows[0]!.user, role, 'it has its role again');
  await ofRole.end();
});

test('the watchdog ends nobody of another name and nobody that holds no shard', async (t) => {
  const strangers = [
    await openBlocked(t, { name: 'another program', locks: true }),
    await openBlocked(t, { name: relayName, locks: false }),
  ];
  // Their transactions are older than its bound by then.
  const old = `SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND xact_start < clock_timestamp() - $2 * interval '1 ms'`;
  for (const { pid } of strangers) {
    await until('it is old', async () => (await pool.query(old, [pid, times.watchdogMs])).rowCount === 1);
  }
  const ended: number[] = [];
  const guard = createPollSource({ pool, times, onStuckRelay: (pid) => ended.push(pid) });
  await delayUntilWatched(guard);
  assert.deepEqual(ended, []);
  for (const { isAlive } of strangers) assert.equal(await isAlive(), true);
  for (const { close } of strangers) assert.equal(await close(), 'lives');
});

/** It looks after the others four times in the time of its bound, as it goes. */
async function delayUntilWatched(source: Source): Promise<void> {
  const signal = AbortSignal.timeout(patienceMs);
  assert.equal(await source.next({ maxMessages: 1, waitMs: times.watchdogMs, signal }), undefined);
}
