import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { failureOf } from '../failure.ts';
import { createInbox } from '../inbox/accept.ts';
import { migrate } from '../migrations/migrate.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { createInboxKeeper } from './inbox-keeper.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 14 });
pool.on('error', () => {});
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
  return uuidv7(timeMs, (random() < 0.5 ? '00' : '01').repeat(10));
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

const verdictCounts = { first: 0, duplicate: 0, altered: 0, late: 0, future: 0 };
let killed = 0;

async function acceptSome(): Promise<void> {
  const inbox = createInbox();
  while (acceptedSoFar < accepts) {
    acceptedSoFar += inBatch;
    const ids = Array.from({ length: inBatch }, someId);
    const accepting = transaction(pool, async (tx) => {
      const arrived = ids.map((id) => ({ id }));
      const found = await inbox.acceptAll(sometimesSlow(tx), 'c', arrived);
      const first = ids.filter((_, n) => found[n] === 'first');
      await tx.query('INSERT INTO effects SELECT unnest($1::uuid[])', [first]);
      return found;
    });
    for (const verdict of await accepting.catch(unlessKilled)) verdictCounts[verdict] += 1;
  }
}

/** What was killed is simply gone: its messages come again. */
function unlessKilled(error: unknown): [] {
  if (failureOf(error) === 'unexpected') throw error;
  killed += 1;
  return [];
}

/** Ends somebody's connection now and then, wherever he is: one who accepts, or a keeper between two steps. */
async function killSome(): Promise<void> {
  while (acceptedSoFar < accepts) {
    await pool.query(
      `SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE datname = current_database()
         AND state <> 'idle' AND pid <> pg_backend_pid() ORDER BY query NOT LIKE 'ALTER%', $1 * pid % 97 LIMIT 1) AS one`,
      [Math.floor(random() * 1_000)],
    );
    await delay(40);
  }
}

test(`no id has two effects while the floor passes it and some are killed, seed ${seed}`, async (context) => {
  const options = { pool, ttlMs, partitionMs, aheadMs: 100, nowMs: () => clockMs, lockTimeoutMs: 100 };
  const keepers = [createInboxKeeper(options), createInboxKeeper(options)];
  while ((await keepers[0]!.runOnce()) === 'busy');
  const keeping = keepers.map(async (keeper, n) => {
    while (acceptedSoFar < accepts) {
      if (n === 0) clockMs += partitionMs;
      await keeper.runOnce().catch(unlessKilled);
    }
  });
  await Promise.all([...keeping, killSome().catch(unlessKilled), ...Array.from({ length: workers }, acceptSome)]);
  const { rows } = await pool.query('SELECT count(*)::int AS effects, count(DISTINCT id)::int AS ids FROM effects');
  const { effects, ids } = rows[0] as { effects: number; ids: number };
  const dropped = keepers.reduce((sum, keeper) => sum + keeper.dropped(), 0);
  context.diagnostic(JSON.stringify({ effects, ids, dropped, killed, ...verdictCounts }));
  assert.equal(effects, ids, `${effects - ids} ids have more than one effect`);
  // It has really been tried.
  assert.ok(dropped > 15 && killed > 10 && verdictCounts.duplicate > 2_000 && verdictCounts.late > 2_000);
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
