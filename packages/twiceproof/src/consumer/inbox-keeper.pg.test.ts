import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { createInbox, type Verdict } from '../inbox/accept.ts';
import { addInboxPartition, forgetPartition, readInbox, type InboxPartition } from '../inbox/partitions.ts';
import { migrate } from '../migrations/migrate.ts';
import { transaction } from '../transaction.ts';
import { uuidv7 } from '../uuid.ts';
import { createInboxKeeper, type InboxKeeper, type InboxKeeperOptions } from './inbox-keeper.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
const inbox = createInbox();

beforeEach(async () => {
  await pool.query('DROP SCHEMA IF EXISTS twiceproof CASCADE');
  await migrate(pool);
});

const hourMs = 3_600_000;
const start = 500_000 * hourMs;
let clockMs = start;

/** By the hour, three hours back and two ahead, by a clock that the tests set. */
function keeper(options: Partial<InboxKeeperOptions> = {}): InboxKeeper {
  const times = { ttlMs: 3 * hourMs, partitionMs: hourMs, aheadMs: 2 * hourMs };
  return createInboxKeeper({ pool, ...times, nowMs: () => clockMs, ...options });
}

async function passAt(timeMs: number, options: Partial<InboxKeeperOptions> = {}): Promise<InboxKeeper> {
  clockMs = timeMs;
  const one = keeper(options);
  assert.equal(await one.runOnce(), 'idle');
  return one;
}

const state = async () => transaction(pool, (tx) => readInbox(tx));

/** In hours from the start. */
async function bounds(): Promise<[floor: number, ceiling: number]> {
  const { bounds: found } = await state();
  return [(found!.floorMs - start) / hourMs, (found!.ceilingMs - start) / hourMs];
}

async function partitions(): Promise<string[]> {
  const show = ({ fromMs, toMs, state: is }: InboxPartition): string =>
    `${(fromMs - start) / hourMs}..${(toMs - start) / hourMs}${is === 'attached' ? '' : ` ${is}`}`;
  return (await state()).partitions.map(show);
}

async function accept(id: string, settings: Record<string, string> = {}): Promise<Verdict> {
  return transaction(pool, (tx) => inbox.accept(tx, { consumer: 'c', id }), { localSettings: settings });
}

test('by the clock of the database, as it is by default: what is sent now is accepted, for two days to come', async () => {
  assert.equal(await createInboxKeeper({ pool, ttlMs: 100 * hourMs }).runOnce(), 'idle');
  assert.equal(await accept(uuidv7()), 'first');
  assert.equal(await accept(uuidv7(Date.now() + 47 * hourMs)), 'first');
  assert.equal(await accept(uuidv7(Date.now() - 99 * hourMs)), 'first');
  assert.equal(await accept(uuidv7(Date.now() - 125 * hourMs)), 'late');
  assert.equal(await accept(uuidv7(Date.now() + 73 * hourMs)), 'future');
});

test('a database whose clock has jumped ahead does not empty the inbox: what is old is old by both clocks', async (t) => {
  const pass = async (): Promise<number> => {
    const one = createInboxKeeper({ pool, ttlMs: 3 * hourMs, partitionMs: hourMs });
    assert.equal(await one.runOnce(), 'idle');
    return one.dropped();
  };
  const databaseMs = Date.now();
  t.mock.timers.enable({ apis: ['Date'], now: databaseMs - 10 * hourMs });
  await pass();
  const id = uuidv7(Date.now() - hourMs);
  assert.equal(await accept(id), 'first');
  assert.equal(await pass(), 0);
  assert.equal(await accept(id), 'duplicate');
  t.mock.timers.setTime(databaseMs);
  assert.equal(await pass(), 10);
  assert.equal(await accept(id), 'late');
});

test('partitions are made ahead and dropped behind, and a pass with nothing to do changes nothing', async () => {
  await passAt(start);
  assert.deepEqual(await bounds(), [-3, 2]);
  assert.deepEqual(await partitions(), ['-3..-2', '-2..-1', '-1..0', '0..1', '1..2']);
  const before = await state();
  assert.equal((await passAt(start + hourMs / 2, { aheadMs: hourMs })).dropped(), 0);
  assert.deepEqual((await state()).partitions, before.partitions);
  assert.equal((await passAt(start + 2 * hourMs + 1)).dropped(), 2);
  assert.deepEqual(await bounds(), [-1, 5]);
  assert.deepEqual(await partitions(), ['-1..0', '0..1', '1..2', '2..3', '3..4', '4..5']);
});

/** An id that was accepted and is forgotten by now, and the partitions that there are. */
async function forgotten(): Promise<{ id: string; kept: string[] }> {
  await passAt(start + 10 * hourMs);
  const id = uuidv7(start + 7 * hourMs);
  assert.equal(await accept(id), 'first');
  await passAt(start + 11 * hourMs);
  return { id, kept: await partitions() };
}

const day = 24 * hourMs;
for (const [why, atMs, options] of [
  ['for a longer retention', start + 11 * hourMs, { ttlMs: 10 * hourMs }],
  ['for a clock that was set back', start + 2 * hourMs, {}],
  ['for a clock that was set back to the beginning', 0, {}],
  ['for partitions of another width', start + 11 * hourMs, { partitionMs: day, ttlMs: 2 * day }],
] as const) {
  test(`the floor never falls, and no partition is made below it again: not ${why}`, async () => {
    const { id, kept } = await forgotten();
    await passAt(atMs, options);
    assert.deepEqual(await partitions(), kept);
    assert.deepEqual(await bounds(), [8, 13]);
    assert.equal(await accept(id), 'late');
  });
}

test('a gap is not filled: what somebody has dropped by hand is not taken for new', async () => {
  const { kept } = await forgotten();
  await pool.query(`DROP TABLE twiceproof."inbox_${start + 8 * hourMs}_${start + 9 * hourMs}"`);
  await passAt(start + 11 * hourMs);
  assert.deepEqual(await partitions(), kept.slice(1));
  await assert.rejects(accept(uuidv7(start + 8 * hourMs)), { code: 'TP_INBOX_EXPIRED' });
});

test('a keeper that was away for long leaves no partition below the floor, and none is missing above', async () => {
  await passAt(start);
  await passAt(start + 100 * hourMs);
  assert.deepEqual(await bounds(), [97, 102]);
  assert.deepEqual(await partitions(), ['97..98', '98..99', '99..100', '100..101', '101..102']);
  assert.equal(await accept(uuidv7(start + 50 * hourMs)), 'late');
});

test('the width may change: partitions follow one another without a gap', async () => {
  await passAt(start);
  await passAt(start + hourMs / 2, { partitionMs: 4 * hourMs, aheadMs: 5 * hourMs });
  await passAt(start + hourMs / 2, { partitionMs: hourMs / 2, aheadMs: 9 * hourMs });
  const all = (await state()).partitions;
  for (const [n, { fromMs }] of all.entries()) if (n > 0) assert.equal(fromMs, all[n - 1]!.toMs);
  assert.ok((await bounds())[1] >= 9);
});

test('a detach that was begun and given up, since another still had the table, is finished by the next pass', async () => {
  await passAt(start);
  const client = await pool.connect();
  await client.query('BEGIN');
  await inbox.accept(client, { consumer: 'c', id: uuidv7(start) });
  await passAt(start + hourMs, { lockTimeoutMs: 50 });
  assert.equal((await partitions())[0], '-3..-2 detaching');
  await client.query('COMMIT');
  client.release();
  assert.equal((await passAt(start + hourMs)).dropped(), 1);
  assert.equal((await partitions())[0], '-2..-1');
});

test('a detach that was begun is finished before another is begun, whichever is older', async () => {
  await passAt(start);
  const client = await pool.connect();
  await client.query('BEGIN');
  await inbox.accept(client, { consumer: 'c', id: uuidv7(start) });
  const [, second] = (await state()).partitions;
  const impatient = await pool.connect();
  await impatient.query('SET lock_timeout = 50');
  await assert.rejects(impatient.query(forgetPartition(second!)[0]!), { code: '55P03' });
  impatient.release(true);
  await client.query('COMMIT');
  client.release();
  assert.equal((await passAt(start + 2 * hourMs)).dropped(), 2);
  assert.equal((await partitions())[0], '-1..0');
});

test('a table that was detached and not dropped goes when it is forgotten, and not before', async () => {
  await passAt(start);
  const [oldest] = (await state()).partitions;
  await pool.query(forgetPartition(oldest!)[0]!);
  assert.equal((await passAt(start)).dropped(), 0);
  assert.equal((await partitions())[0], '-3..-2 detached');
  assert.equal((await passAt(start + hourMs)).dropped(), 1);
  assert.equal((await partitions())[0], '-2..-1');
});

test('a partition that was attached before its keeper could raise the ceiling is not made again', async () => {
  await passAt(start);
  const range = { fromMs: start + 2 * hourMs, toMs: start + 3 * hourMs };
  await transaction(pool, (tx) => addInboxPartition(tx, range));
  assert.equal(await accept(uuidv7(range.fromMs)), 'future');
  await passAt(start);
  assert.equal((await state()).bounds!.ceilingMs, range.toMs);
  assert.equal(await accept(uuidv7(range.fromMs)), 'first');
});

test('several keepers at once, from the first pass on: each partition is made once and dropped once', async () => {
  clockMs = start;
  const keepers = [1, 2, 3, 4].map(() => keeper());
  for (let turn = 0; turn < 12; turn += 1) {
    await Promise.all(keepers.map(async (each) => each.runOnce()));
    while ((await keepers[0]!.runOnce()) === 'busy');
    assert.deepEqual(await bounds(), [turn - 3, turn + 2]);
    assert.deepEqual(
      await partitions(),
      Array.from({ length: 5 }, (_, n) => `${turn + n - 3}..${turn + n - 2}`),
    );
    clockMs += hourMs;
  }
});

test('beside a transaction that stays open on the inbox, no accept waits for the keeper, and it grows', async () => {
  await passAt(start);
  const client = await pool.connect();
  await client.query('BEGIN');
  // It has used the very partition that is to go, and the whole inbox.
  await inbox.accept(client, { consumer: 'c', id: uuidv7(start - 3 * hourMs) });
  await client.query('SELECT count(*) FROM twiceproof.inbox');
  clockMs = start + hourMs;
  let passes = 0;
  const passing = (async () => {
    for (; passes < 2; passes += 1) await keeper({ lockTimeoutMs: 700 }).runOnce();
  })();
  let accepted = 0;
  while (passes < 2) {
    const id = uuidv7(start + hourMs / 2);
    assert.equal(await accept(id, { lock_timeout: '150ms' }), 'first');
    assert.equal(await accept(id, { lock_timeout: '150ms' }), 'duplicate');
    accepted += 1;
  }
  await passing;
  assert.ok(accepted > 10);
  assert.equal((await partitions())[0], '-3..-2 detaching');
  assert.deepEqual(await bounds(), [-2, 3]);
  await client.query('COMMIT');
  client.release();
  assert.equal((await passAt(clockMs)).dropped(), 1);
});

test('when a partition begins to go, the floor above it is committed', async () => {
  await passAt(start);
  clockMs = start + 3 * hourMs;
  const seen: boolean[] = [];
  const watching = {
    connect: async () => {
      const client = await pool.connect();
      return {
        query: async (text: string, values?: unknown[]) => {
          const [, toMs] = /DETACH PARTITION .*inbox_\d+_(\d+)/.exec(text) ?? [];
          if (toMs !== undefined) seen.push((await state()).bounds!.floorMs >= Number(toMs));
          return client.query(text, values);
        },
        release: (destroy?: boolean) => client.release(destroy),
      };
    },
  };
  await keeper({ pool: watching }).runOnce();
  assert.deepEqual(seen, [true, true, true]);
});

test('partitions belong to the owner of the inbox, whoever makes them', async () => {
  await pool.query(`DROP ROLE IF EXISTS tp_test_owner; CREATE ROLE tp_test_owner;
    GRANT USAGE, CREATE ON SCHEMA twiceproof TO tp_test_owner; ALTER TABLE twiceproof.inbox OWNER TO tp_test_owner`);
  await passAt(start);
  const { rows } = await pool.query(
    `SELECT DISTINCT relowner::regrole::text AS owner FROM pg_class
     WHERE relnamespace = 'twiceproof'::regnamespace AND relkind = 'r' AND relname ~ '^inbox_[0-9]'`,
  );
  assert.deepEqual(rows, [{ owner: 'tp_test_owner' }]);
  await pool.query('DROP OWNED BY tp_test_owner; DROP ROLE tp_test_owner');
});

test('options that cannot be are refused', async () => {
  for (const wrong of [
    { ttlMs: 0 },
    { ttlMs: Number.NaN },
    { ttlMs: Infinity },
    { partitionMs: 0 },
    { partitionMs: 1.5 },
    { aheadMs: 0 },
    { lockTimeoutMs: 0 },
    { lockTimeoutMs: 0.4 },
    { intervalMs: 0 },
    // A timer of Node's that is longer than it can be ends at once.
    { intervalMs: 2 ** 31 },
  ]) {
    assert.throws(() => keeper(wrong), { code: 'TP_OPTION' });
  }
  // Of one millisecond there would be more than there is memory for.
  for (const partitionMs of [1, 1_000]) {
    await assert.rejects(keeper({ partitionMs }).runOnce(), { code: 'TP_OPTION', message: /make partitionMs larger/ });
  }
  await assert.rejects(keeper({ schema: 'not_there' }).runOnce(), { code: '42P01' });
});
