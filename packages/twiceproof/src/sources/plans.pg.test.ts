/** What is asked many times a second must not read the log from end to end, whatever the planner knows of it. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { shardsWithWork } from './poll-statements.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 1 });
after(async () => pool.end());
await migrate(pool);
// As a long life leaves it: many transactions, all of them published.
await pool.query(`INSERT INTO twiceproof.outbox (xid, shard, topic, aggregate_id, msg_id, event_type, payload)
  SELECT (3 + n % 500)::text::xid8, 0, 't', 'a' || n, gen_random_uuid(), 'e', 'payload'
  FROM generate_series(1, 100000) AS n`);

async function blocksRead(text: string, values: unknown[] = []): Promise<number> {
  const { rows } = await pool.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(
    `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`,
    values,
  );
  const { Plan } = rows[0]!['QUERY PLAN'][0];
  return Plan['Shared Hit Blocks']! + Plan['Shared Read Blocks']!;
}

for (const state of ['never analysed', 'analysed']) {
  test(`to look for work touches a few blocks of an outbox that is ${state}`, async () => {
    // In the place of a cursor that has passed all of it: the ids above are lower than any of this server.
    if (state === 'analysed') await pool.query('ANALYZE');
    const { rows } = await pool.query(shardsWithWork('"twiceproof"'));
    assert.deepEqual(rows, []);
    const blocks = await blocksRead(shardsWithWork('"twiceproof"'));
    assert.ok(blocks < 100, `${blocks} blocks`);
  });
}
