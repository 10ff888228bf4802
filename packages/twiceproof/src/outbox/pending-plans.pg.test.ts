/** What is asked once a second must not read the log from end to end, whatever the planner knows of it. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { countPending, oldestPending, pendingShards } from './pending.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 1 });
after(async () => pool.end());
await migrate(pool);
// As a long life leaves it: many transactions, all of them published, since their ids are lower than any of this server.
await pool.query(`INSERT INTO twiceproof.outbox (xid, shard, topic, aggregate_id, msg_id, event_type, payload)
  SELECT (3 + n % 500)::text::xid8, 0, 't', 'a' || n, gen_random_uuid(), 'e', 'payload'
  FROM generate_series(1, 100000) AS n`);
/** Of the table; who reads all of it touches them. */
const blocksOfAll = 1_000;

/** Sends what it is given with EXPLAIN before it, and answers how many blocks that has touched. */
async function blocksRead(ask: (tx: { query: typeof explained }) => Promise<unknown>): Promise<number> {
  let blocks = 0;
  async function explained(text: string, values?: unknown[]) {
    const { rows } = await pool.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(
      `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`,
      values,
    );
    const { Plan } = rows[0]!['QUERY PLAN'][0];
    blocks += Plan['Shared Hit Blocks']! + Plan['Shared Read Blocks']!;
    return pool.query<Record<string, unknown>>(text, values);
  }
  await ask({ query: explained });
  return blocks;
}

for (const state of ['never analysed', 'analysed']) {
  test(`to count what is pending touches a few blocks of an outbox that is ${state}`, async () => {
    if (state === 'analysed') await pool.query('ANALYZE');
    const { rows } = await pool.query<{ blocks: number }>(
      "SELECT (pg_relation_size('twiceproof.outbox_default') / 8192)::int AS blocks",
    );
    assert.ok(rows[0]!.blocks > blocksOfAll);
    for (const ask of [
      async (tx: Parameters<typeof countPending>[0]) => countPending(tx, 5_000_000),
      oldestPending,
      async (tx: Parameters<typeof countPending>[0]) => pendingShards(tx, 5_000_000),
    ]) {
      const blocks = await blocksRead(ask);
      assert.ok(blocks < 100, `${blocks} blocks for ${ask.name || ask.toString()}`);
    }
  });
}
