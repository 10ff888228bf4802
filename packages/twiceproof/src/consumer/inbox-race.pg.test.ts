import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { createInbox } from '../inbox/accept.ts';
import { migrate } from '../migrations/migrate.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { createInboxKeeper } from './inbox-keeper.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 14 });
after(async () => pool.end());
await migrate(pool);
// Without any unique key: it shows what the inbox alone prevents.
await pool.query('CREATE TABLE effects (id uuid NOT NULL)');

const accepts = 24_000;
const inBatch = 10;
const workers = 8;
const ttlMs = 200;
const partitionMs = 20;

/** It moves with each pass of the first keeper, so that the floor passes each id while it is accepted again and again. */
let clockMs = 1_700_000_000_000;
let acceptedSoFar = 0;

const seed = Number(process.env['SEED'] ?? randomInt(2 ** 31));
const random = mulberry32(seed);

/** Around the floor, before it and behind it, and few enough to come again some times. */
function someId(): string {
  const timeMs = clockMs - ttlMs - 60 + Math.floor(random() * 120);
  return uuidv7(timeMs, Buffer.alloc(10, Math.floor(random() * 2)));
}

/**
 * The same statement, but slow between its look at the floor and its insert, in one of four cases: the time in which a keeper
 * can do all that it does.
 */
function sometimesSlow(tx: Tx): Tx {
  if (random() > 0.25) return tx;
  const ms = Math.floor(5 + random() * 25);
  return {
    query: async (text, values) =>
      tx.query(text.replace('.inbox_bounds)', `.inbox_bounds, pg_sleep(${ms} / 1000.0))`), values),
  };
}

const verdictCounts: Record<string, number> = {};

async function acceptSome(): Promise<void> {
  const inbox = createInbox();
  while (acceptedSoFar < accepts) {
    acceptedSoFar += inBatch;
    const ids = Array.from({ length: inBatch }, someId);
    const verdicts = await transaction(pool, async (tx) => {
      const found = await inbox.acceptAll(
        sometimesSlow(tx),
        'c',
        ids.map((id) => ({ id })),
      );
      const first = ids.filter((_, n) => found[n] === 'first');
      await tx.query('INSERT INTO effects SELECT unnest($1::uuid[])', [first]);
      return found;
    });
    for (const verdict of verdicts) verdictCounts[verdict] = (verdictCounts[verdict] ?? 0) + 1;
  }
}

test(`no id has two effects while the floor passes it, seed ${seed}`, async (context) => {
  const keepers = [1, 2].map(() =>
    createInboxKeeper({ pool, ttlMs, partitionMs, aheadMs: 100, nowMs: () => clockMs, lockTimeoutMs: 100 }),
  );
  while ((await keepers[0]!.runOnce()) === 'busy');
  const accepting = Array.from({ length: workers }, acceptSome);
  const keeping = keepers.map(async (keeper, n) => {
    while (acceptedSoFar < accepts) {
      if (n === 0) clockMs += partitionMs;
      await keeper.runOnce();
    }
  });
  await Promise.all([...accepting, ...keeping]);
  const { rows } = await pool.query(`SELECT count(*)::int AS effects, count(DISTINCT id)::int AS ids FROM effects`);
  const { effects, ids } = rows[0] as { effects: number; ids: number };
  const dropped = keepers.reduce((sum, keeper) => sum + keeper.dropped(), 0);
  context.diagnostic(JSON.stringify({ effects, ids, dropped, ...verdictCounts }));
  assert.equal(effects, ids, `${effects - ids} ids have more than one effect`);
  assert.equal(effects, verdictCounts['first']);
  // It has really been tried.
  assert.ok(dropped > 20 && verdictCounts['duplicate']! > 2_000 && verdictCounts['late']! > 2_000);
});

function mulberry32(from: number): () => number {
  let state = from;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
