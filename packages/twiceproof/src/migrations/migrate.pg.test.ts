import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { describeSchema } from './describe-schema.ts';
import { migrate, migrations } from './migrate.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());

const names = migrations().map(({ name }) => name);

async function describe(schema: string): Promise<string> {
  const client = await pool.connect();
  try {
    return await describeSchema(client, schema);
  } finally {
    client.release();
  }
}

test('programs that start together migrate once, and a later one finds nothing to do', async () => {
  const applied = await Promise.all([1, 2, 3, 4].map(async () => migrate(pool, { schema: 'together' })));
  assert.deepEqual(applied.flat().toSorted(), names);
  assert.deepEqual(await migrate(pool, { schema: 'together' }), []);
});

test('the schema is the one in sql/schema.sql', async () => {
  await migrate(pool);
  const file = join(import.meta.dirname, '../../sql/schema.sql');
  const found = await describe('twiceproof');
  if (process.env['UPDATE_SCHEMA']) writeFileSync(file, found);
  assert.equal(found, readFileSync(file, 'utf8'), 'run it with UPDATE_SCHEMA=1 and look at the difference');
});

test('a schema of another name has the same tables, and they do not know each other', async () => {
  await migrate(pool, { schema: 'other_name', shards: 3 });
  assert.equal(await describe('other_name'), await describe('twiceproof'));
  const { rows } = await pool.query(
    'SELECT shards, (SELECT count(*)::int FROM other_name.relay_cursor) AS cursors FROM other_name.settings',
  );
  assert.deepEqual(rows, [{ shards: 3, cursors: 3 }]);
});

test('the number of shards is set once, and a second start with another number does not change it', async () => {
  await migrate(pool, { schema: 'sharded', shards: 2 });
  await migrate(pool, { schema: 'sharded', shards: 8 });
  assert.deepEqual((await pool.query('SELECT shards FROM sharded.settings')).rows, [{ shards: 2 }]);
});

test('a migration that fails leaves nothing of itself, and the next call goes on from there', async () => {
  await pool.query('CREATE SCHEMA broken; CREATE VIEW broken.outbox_pending AS SELECT 1 AS in_the_way');
  await assert.rejects(migrate(pool, { schema: 'broken' }), /outbox_pending/);
  assert.deepEqual((await pool.query("SELECT to_regclass('broken.outbox') AS outbox")).rows, [{ outbox: null }]);
  await pool.query('DROP VIEW broken.outbox_pending');
  assert.deepEqual(await migrate(pool, { schema: 'broken' }), names);
});

test('any name that is allowed makes a schema of that name, reserved words too', async () => {
  const allowed = ['select', 'user', '_', '__proto__', 'x'.repeat(63)];
  for (const schema of allowed) assert.deepEqual(await migrate(pool, { schema }), names, schema);
  const { rows } = await pool.query<{ schema: string }>(
    `SELECT table_schema AS schema FROM information_schema.tables WHERE table_name = 'outbox' AND table_schema = ANY($1)`,
    [allowed],
  );
  assert.deepEqual(rows.map(({ schema }) => schema).toSorted(), allowed.toSorted());
});

test('names that cannot be a schema, and numbers that cannot be a count, are refused before any query', async () => {
  const untouchable = { connect: () => assert.fail('a connection was asked for') };
  for (const schema of ['', 'A', 'a-b', 'a b', 'a"; DROP SCHEMA x; --', '1a', 'x'.repeat(64), 'ä']) {
    await assert.rejects(migrate(untouchable, { schema }), { code: 'TP_SCHEMA_NAME' }, schema);
  }
  for (const shards of [0, -1, 1.5, 1025, Number.NaN]) {
    await assert.rejects(migrate(untouchable, { shards }), { code: 'TP_OPTION' }, String(shards));
  }
});
