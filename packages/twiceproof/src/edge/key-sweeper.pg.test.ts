import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { transaction } from '../transaction.ts';
import type { Answer, Intent } from '../idempotency/intent.ts';
import { createKeyStore } from '../idempotency/statements.ts';
import { removeExpired } from '../idempotency/remove-expired.ts';
import type { Tx } from '../tx.ts';
import { createKeySweeper } from './key-sweeper.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
await migrate(pool);
const store = createKeyStore();

function intents(from: number, count: number): Intent[] {
  return Array.from({ length: count }, (_, n) => ({
    principal: 'p',
    operation: 'o',
    key: `key-${from + n}`,
    requestHash: 'aa',
    hashVersion: 1,
  }));
}

const answer: Answer = { code: 200, headers: null, body: Buffer.alloc(100), version: 1 };

/** Claims them with an answer each, as if that had been so many hours ago. */
async function claimed(from: number, count: number, hoursAgo: number): Promise<number> {
  return transaction(pool, async (tx) => {
    const claims = await store.claim(tx, intents(from, count));
    const ids = [...claims.values()].map(({ id }) => id);
    await store.store(
      tx,
      ids.map((id) => ({ id, answer })),
    );
    await tx.query(
      "UPDATE twiceproof.idempotency_keys SET created_at = created_at - $1 * interval '1 hour' WHERE id = ANY($2::bigint[])",
      [hoursAgo, ids],
    );
    return ids.length;
  });
}

async function countRows(table: string): Promise<number> {
  return (await pool.query<{ n: number }>(`SELECT count(*)::int AS n FROM twiceproof.${table}`)).rows[0]!.n;
}

async function sweepAll(sweeper: ReturnType<typeof createKeySweeper>): Promise<number> {
  let passes = 1;
  while ((await sweeper.runOnce()) === 'busy') passes += 1;
  return passes;
}

test('a database whose clock has jumped ahead loses no key: what is old is old by both clocks', async (t) => {
  await pool.query('TRUNCATE twiceproof.idempotency_keys, twiceproof.answers');
  await claimed(0, 10, 73);
  const sweeper = createKeySweeper({ pool });
  const databaseMs = Date.now();
  t.mock.timers.enable({ apis: ['Date'], now: databaseMs - 10 * 3_600_000 });
  await sweepAll(sweeper);
  assert.equal(sweeper.removed(), 0);
  t.mock.timers.setTime(databaseMs);
  await sweepAll(sweeper);
  assert.equal(sweeper.removed(), 10);
});

test('a clock of our own that was ahead for a while delays nothing once it is right again', async (t) => {
  await pool.query('TRUNCATE twiceproof.idempotency_keys, twiceproof.answers');
  const sweeper = createKeySweeper({ pool });
  const now = Date.now();
  t.mock.timers.enable({ apis: ['Date'], now: now + 365 * 86_400_000 });
  await sweepAll(sweeper);
  t.mock.timers.setTime(now);
  await claimed(0, 10, 73);
  await sweepAll(sweeper);
  assert.equal(sweeper.removed(), 10);
});

test('old keys go with their answers, a few in each pass, and no other key goes', async () => {
  await claimed(0, 1_000, 73);
  await claimed(1_000, 500, 71);
  const sweeper = createKeySweeper({ pool, keysInPass: 100 });
  await sweeper.runOnce();
  assert.equal(sweeper.removed(), 100);
  assert.ok((await sweepAll(sweeper)) >= 9);
  assert.equal(sweeper.removed(), 1_000);
  assert.deepEqual([await countRows('idempotency_keys'), await countRows('answers')], [500, 500]);
  const { rows } = await pool.query(
    "SELECT 1 FROM twiceproof.idempotency_keys WHERE created_at < now() - interval '72 hours'",
  );
  assert.equal(rows.length, 0);
});

test('a pass waits for no disk, and one that finds nothing old takes no transaction id', async () => {
  await pool.query('TRUNCATE twiceproof.idempotency_keys, twiceproof.answers');
  await pool.query(`CREATE TABLE seen (commits text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
      $$BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END$$;
    CREATE CONSTRAINT TRIGGER at_commit AFTER DELETE ON twiceproof.idempotency_keys
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()`);
  await claimed(20_000, 1, 73);
  await claimed(20_001, 1, 1);
  const sweeper = createKeySweeper({ pool });
  await sweepAll(sweeper);
  assert.equal(sweeper.removed(), 1);
  assert.deepEqual((await pool.query('SELECT commits FROM seen')).rows, [{ commits: 'off' }]);
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await removeExpired(client, {
      blocks: { from: 0, to: 64 },
      retentionMs: 72 * 3_600_000,
      atMost: 1,
      schema: undefined,
    });
    const { rows } = await client.query('SELECT pg_current_xact_id_if_assigned()::text AS id');
    assert.deepEqual(rows, [{ id: null }]);
  } finally {
    client.release(true);
  }
  await pool.query('DROP TRIGGER at_commit ON twiceproof.idempotency_keys');
});

test('where all keys are young it does not look before the oldest comes to its end, and once a day at the least', async (t) => {
  await pool.query('TRUNCATE twiceproof.idempotency_keys, twiceproof.answers');
  t.mock.timers.enable({ apis: ['Date'], now: Date.now() });
  const laterBy = async (hours: number): Promise<void> => {
    t.mock.timers.tick(hours * 3_600_000 + 5_001);
    await pool.query("UPDATE twiceproof.idempotency_keys SET created_at = created_at - $1 * interval '1 hour'", [
      hours,
    ]);
  };
  await claimed(30_000, 400, 70);
  await claimed(30_400, 100, 30);
  const sweeper = createKeySweeper({ pool });
  assert.equal(await sweepAll(sweeper), 2, 'one pass, and nothing is due');
  await laterBy(1.9);
  assert.equal(await sweepAll(sweeper), 1, 'nothing is due');
  await laterBy(0.2);
  assert.equal(await sweepAll(sweeper), 4, 'two full passes, one more, and nothing is due');
  assert.equal(sweeper.removed(), 400);
  await laterBy(23);
  assert.equal(await sweepAll(sweeper), 1);
  await laterBy(1);
  assert.equal(await sweepAll(sweeper), 2);
  await laterBy(16);
  await sweepAll(sweeper);
  assert.equal(sweeper.removed(), 500);
});

test('what is added behind the end that it knew is found, and what expires comes before what was not seen yet', async (t) => {
  await pool.query('TRUNCATE twiceproof.idempotency_keys, twiceproof.answers');
  const hourAgo = Date.now() - 3_600_000;
  t.mock.timers.enable({ apis: ['Date'], now: hourAgo });
  const sweeper = createKeySweeper({ pool, blocksInPass: 1, keysInPass: 10 });
  await claimed(70_000, 20, 72.5);
  await sweepAll(sweeper);
  assert.equal(sweeper.removed(), 0, 'by our own clock they are not old yet');
  await claimed(71_000, 5_000, 1);
  t.mock.timers.setTime(hourAgo + 1_900_000);
  await sweeper.runOnce(); // It learns of what was added.
  assert.equal(sweeper.removed(), 10);
  await sweeper.runOnce();
  assert.equal(sweeper.removed(), 20);
  const { rows } = await pool.query<{ pages: number }>(
    "SELECT (pg_relation_size('twiceproof.idempotency_keys') / current_setting('block_size')::int)::int AS pages",
  );
  assert.equal(await sweepAll(sweeper), rows[0]!.pages + 1, 'each block once, and nothing is due');
});

test('one that finds keys which another is removing comes again: nothing is left when that one goes away', async () => {
  await pool.query('TRUNCATE twiceproof.idempotency_keys, twiceproof.answers');
  await claimed(80_000, 300, 100);
  const other = await pool.connect();
  await other.query('BEGIN');
  await other.query(
    'DELETE FROM twiceproof.idempotency_keys WHERE ctid = ANY (ARRAY(SELECT ctid FROM twiceproof.idempotency_keys LIMIT 100))',
  );
  const sweeper = createKeySweeper({ pool, keysInPass: 100, slackMs: 0 });
  const pass = sweeper.runOnce();
  await untilWaiting();
  await other.query('COMMIT');
  other.release();
  await pass;
  assert.equal(sweeper.removed(), 0, 'the other one had them');
  await sweepAll(sweeper);
  assert.equal(sweeper.removed(), 200);
});

async function untilWaiting(): Promise<void> {
  for (let tries = 0; tries < 1_000; tries += 1) {
    const { rowCount } = await pool.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    if (rowCount! > 0) return;
  }
  assert.fail('nobody waits');
}

test('steps of no keys or of no blocks are refused', () => {
  for (const wrong of [{ keysInPass: 0 }, { blocksInPass: 0 }, { blocksInPass: 1.5 }]) {
    assert.throws(() => createKeySweeper({ pool, ...wrong }), { code: 'TP_OPTION' });
  }
});

test('a pass is planned without wading through answers that are gone and not vacuumed yet', async () => {
  await pool.query('TRUNCATE twiceproof.idempotency_keys, twiceproof.answers');
  // With statistics, as a database may have them of a time before it was told to collect none.
  await pool.query('ALTER TABLE twiceproof.answers ALTER id SET STATISTICS 100');
  await pool.query('ALTER TABLE twiceproof.idempotency_keys ALTER id SET STATISTICS 100');
  await claimed(50_000, 5_000, 100);
  await claimed(60_000, 1_000, 1);
  await pool.query('ANALYZE twiceproof.idempotency_keys, twiceproof.answers');
  const client = await pool.connect();
  try {
    await blocksToPlan(client); // Fills the caches of the connection.
    await sweepAll(createKeySweeper({ pool }));
    const blocks = await blocksToPlan(client);
    assert.ok(blocks < 20, `${blocks} blocks were looked at only to make a plan`);
  } finally {
    client.release();
    await pool.query('ALTER TABLE twiceproof.answers ALTER id SET STATISTICS 0');
    await pool.query('ALTER TABLE twiceproof.idempotency_keys ALTER id SET STATISTICS 0');
  }
});

/** How many blocks Postgres looks at before it carries out a pass that finds nothing. */
async function blocksToPlan(client: pg.PoolClient): Promise<number> {
  let blocks = 0;
  const explaining: Tx = {
    query: async (text, values) => {
      const { rows } = await client.query<{ 'QUERY PLAN': [{ Planning: Record<string, number> }] }>(
        `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`,
        values,
      );
      const [{ Planning: planning }] = rows[0]!['QUERY PLAN'];
      blocks = planning['Shared Hit Blocks']! + planning['Shared Read Blocks']!;
      return { rows: [], rowCount: 0 };
    },
  };
  await removeExpired(explaining, { blocks: { from: 0, to: 64 }, retentionMs: 1e12, atMost: 1, schema: undefined });
  return blocks;
}

test('an expired key can be claimed again, once, and a live one never, while the sweeper runs', async () => {
  await claimed(5_000, 300, 80);
  await claimed(6_000, 300, 1);
  const stop = new AbortController();
  const sweeping = createKeySweeper({ pool, pauseMs: 1, slackMs: 1 }).run(stop.signal);
  let won = 0;
  let liveWon = 0;
  const claimer = async (): Promise<void> => {
    for (let round = 0; round < 40; round += 1) {
      const expired = await transaction(pool, (tx) => store.claim(tx, intents(5_000, 300)));
      const live = await transaction(pool, (tx) => store.claim(tx, intents(6_000, 300)));
      won += expired.size;
      liveWon += live.size;
    }
  };
  await Promise.all([claimer(), claimer(), claimer()]);
  stop.abort();
  await sweeping;
  assert.equal(won, 300, 'each of the expired ones was won by exactly one');
  assert.equal(liveWon, 0);
});

test('over many turnovers the table does not grow', async () => {
  await pool.query('TRUNCATE twiceproof.idempotency_keys, twiceproof.answers');
  const sizes: number[] = [];
  for (let turn = 0; turn < 8; turn += 1) {
    await claimed(10_000 + turn * 2_000, 2_000, 100);
    await sweepAll(createKeySweeper({ pool, keysInPass: 1_000 }));
    await pool.query('VACUUM twiceproof.idempotency_keys, twiceproof.answers');
    const { rows } = await pool.query<{ size: string }>(
      "SELECT pg_total_relation_size('twiceproof.idempotency_keys') AS size",
    );
    sizes.push(Number(rows[0]!.size));
  }
  assert.ok(sizes.at(-1)! <= 1.5 * sizes[1]!, `sizes: ${sizes.join(' ')}`);
});

test('keys that expire together stand together, also after many turnovers', async () => {
  await pool.query('TRUNCATE twiceproof.idempotency_keys, twiceproof.answers');
  const keysInTurn = 2_000;
  const turnsKept = 10;
  for (let turn = 0; turn < 4 * turnsKept; turn += 1) {
    // Hour after hour: the first one is 100 hours ago.
    await pool.query(
      `INSERT INTO twiceproof.idempotency_keys (key_hash, principal, operation, idem_key, request_hash, hash_version, created_at)
       SELECT gen_random_uuid(), 'p', 'o', $1 || '-' || n, '', 1, now() - (100 - $1::int) * interval '1 hour'
       FROM generate_series(1, $2::int) n`,
      [turn, keysInTurn],
    );
    const retentionMs = (100 - turn + turnsKept - 0.5) * 3_600_000;
    await sweepAll(createKeySweeper({ pool, keysInPass: 1_000, blocksInPass: 2, retentionMs }));
    await pool.query('VACUUM twiceproof.idempotency_keys');
  }
  const { rows } = await pool.query<{ pages: number; all_pages: number }>(
    `SELECT count(DISTINCT (ctid::text::point)[0]) FILTER (WHERE created_at = oldest)::int AS pages,
       count(DISTINCT (ctid::text::point)[0])::int AS all_pages
     FROM twiceproof.idempotency_keys, (SELECT min(created_at) AS oldest FROM twiceproof.idempotency_keys) AS first`,
  );
  const { pages, all_pages } = rows[0]!;
  // A tenth of the keys, so a tenth of the pages; in no order they would be on all of them.
  assert.equal(await countRows('idempotency_keys'), turnsKept * keysInTurn);
  assert.ok(pages <= (2 * all_pages) / turnsKept, `${pages} of ${all_pages} pages`);
});
