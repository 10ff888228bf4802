import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import pg from 'pg';
import { startPostgres } from '@twiceproof/infra/postgres';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { createOutbox } from '../outbox/append.ts';
import { createPollSource } from '../sources/poll.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { prune } from './outbox-prune.ts';

const { url } = await testDatabase();
const home = new pg.Pool({ connectionString: url });
const otherCluster = await startPostgres();
// Its connections do not outlive a test: the leak check knows only those of the test's own database.
const other = new pg.Pool({ connectionString: otherCluster.url, idleTimeoutMillis: 10 });
other.on('error', () => {});
after(async () => {
  await home.end();
  await other.end();
  await otherCluster.close();
});

// So that home has used up more transactions than the other cluster, in which next to nothing is done.
await home.query('DO $$ BEGIN FOR n IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$');

const outbox = createOutbox({ topics: ['t'] });
const signal = new AbortController().signal;

beforeEach(async () => {
  for (const pool of [home, other]) {
    await pool.query('DROP SCHEMA IF EXISTS twiceproof CASCADE');
    await migrate(pool, { shards: 2 });
  }
});

async function append(tx: Tx, ...texts: string[]): Promise<void> {
  const messages = texts.map((text) => ({
    topic: 't',
    aggregateId: text.replace(/\d+$/, ''),
    type: 'said',
    payload: Buffer.from(text),
    headers: { of: text },
  }));
  await outbox.append(tx, messages);
}
const appendTo = async (pool: Pool, ...texts: string[]): Promise<void> =>
  transaction(pool, (tx) => append(tx, ...texts));

/** Page by page, as far as told. */
async function publish(pool: Pool, { page = 100, pages = Infinity } = {}): Promise<string[]> {
  const source = createPollSource({ pool });
  await source.check();
  const texts: string[] = [];
  for (let n = 0; n < pages; n += 1) {
    const batch = await source.next({ maxMessages: page, waitMs: 0, signal });
    if (!batch) break;
    texts.push(...batch.messages.map(({ payload }) => Buffer.from(payload).toString()));
    await batch.advance({ done: batch.messages.length, parked: [] });
  }
  return texts;
}

function repairAt(databaseUrl: string): unknown {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(import.meta.dirname, 'main.ts'), 'outbox', 'repair', '--json'],
    { encoding: 'utf8', env: { ...process.env, DATABASE_URL: databaseUrl } },
  );
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

/** As a dump does it: all values as they are in one snapshot, and the next numbers of sequences. */
async function dumpAndRestore(from: Pool, to: Pool): Promise<void> {
  const tables = ['settings', 'outbox', 'relay_cursor', 'relay_parked'];
  const dump = await transaction(
    from,
    async (tx) => {
      const found: Record<string, unknown> = {};
      for (const table of tables) {
        const { rows } = await tx.query(`SELECT json_agg(t)::text AS rows FROM twiceproof.${table} t`);
        found[table] = rows[0]!['rows'] ?? '[]';
      }
      const next = await tx.query(`SELECT nextval(pg_get_serial_sequence('twiceproof.outbox', 'id'))::text AS id`);
      found['next'] = next.rows[0]!['id'];
      return found;
    },
    { isolation: 'REPEATABLE READ' },
  );
  await transaction(to, async (tx) => {
    for (const table of tables) {
      await tx.query(`DELETE FROM twiceproof.${table}`);
      await tx.query(
        `INSERT INTO twiceproof.${table} OVERRIDING SYSTEM VALUE
         SELECT * FROM json_populate_recordset(NULL::twiceproof.${table}, $1::json)`,
        [dump[table]],
      );
    }
    await tx.query(`SELECT setval(pg_get_serial_sequence('twiceproof.outbox', 'id'), $1)`, [dump['next']]);
  });
}

/** Some published, some of them by half a window, one committed late, some not published. */
async function liveThrough(pool: pg.Pool): Promise<string[]> {
  const late = await pool.connect();
  try {
    await appendTo(pool, 'a1', 'b1', 'c1', 'd1');
    await publish(pool);
    await late.query('BEGIN');
    await append(late, 'late1');
    await appendTo(pool, 'a2', 'b2', 'c2', 'd2', 'a3', 'b3', 'c3', 'd3');
    await publish(pool, { page: 2, pages: 2 });
    await late.query('COMMIT');
    await appendTo(pool, 'a4', 'b4', 'c4', 'd4');
  } finally {
    late.release();
  }
  const { rows } = await pool.query<{ text: string }>(
    `SELECT convert_from(o.payload, 'utf8') AS text FROM twiceproof.outbox o JOIN twiceproof.relay_cursor c USING (shard)
     WHERE NOT pg_visible_in_snapshot(o.xid, c.prev)
       AND NOT (c.cur IS NOT NULL AND o.id <= c.last_id AND pg_visible_in_snapshot(o.xid, c.cur)) ORDER BY o.id`,
  );
  return rows.map(({ text }) => text);
}

const byKey = (texts: readonly string[]): Record<string, string[]> =>
  Object.fromEntries(
    Map.groupBy(
      texts.toSorted((a, b) => a.localeCompare(b)),
      (text) => text.replace(/\d+$/, ''),
    ),
  );

/** Exactly these, and those of a key in their order. */
function assertSame(found: readonly string[], expected: readonly string[]): void {
  assert.deepEqual(found.toSorted(), expected.toSorted());
  for (const [key, texts] of Object.entries(byKey(found))) {
    assert.deepEqual(
      found.filter((text) => text.startsWith(key)),
      texts,
    );
  }
}

test('restored into another cluster: refused, repaired, and exactly what was not published comes out, in order', async () => {
  const unpublished = await liveThrough(home);
  assert.ok(unpublished.includes('late1') && unpublished.includes('d4') && !unpublished.includes('d1'));
  assert.ok(unpublished.length < 13, 'some of the window is published');
  await dumpAndRestore(home, other);
  await assert.rejects(createPollSource({ pool: other }).check(), { code: 'TP_CURSOR_FOREIGN' });
  await assert.rejects(prune(other, { retention: 0, stepXids: 100n, maxWaitMs: 100 }), { code: 'TP_CURSOR_FOREIGN' });
  assert.deepEqual(repairAt(otherCluster.url), { outcome: 'repaired', unpublished: unpublished.length });
  assertSame(await publish(other, { page: 3 }), unpublished);
  await appendTo(other, 'a5', 'd5');
  assertSame(await publish(other), ['a5', 'd5']);
  assert.deepEqual(repairAt(otherCluster.url), { outcome: 'nothing to repair' });
});

test('writers that were started before the repair: what they wrote is published too, from within a savepoint as well', async () => {
  const unpublished = await liveThrough(home);
  await dumpAndRestore(home, other);
  await appendTo(other, 'a5', 'b5');
  await transaction(other, async (tx) => {
    await tx.query('SAVEPOINT s');
    await append(tx, 'c5');
    await tx.query('RELEASE s');
  });
  repairAt(otherCluster.url);
  assertSame(await publish(other), [...unpublished, 'a5', 'b5', 'c5']);
});

test('the same when the cluster is further than the old one was, and only its identifier differs', async () => {
  const unpublished = await liveThrough(other);
  await dumpAndRestore(other, home);
  // Two clusters that were cloned from one template have one identifier.
  await home.query('UPDATE twiceproof.relay_cursor SET system_identifier = system_identifier - 1');
  await assert.rejects(createPollSource({ pool: home }).check(), { code: 'TP_CURSOR_FOREIGN' });
  await appendTo(home, 'a5');
  repairAt(url);
  assertSame(await publish(home), [...unpublished, 'a5']);
});
