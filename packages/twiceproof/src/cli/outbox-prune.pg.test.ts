import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { createOutbox } from '../outbox/append.ts';
import { createPollSource } from '../sources/poll.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { prune, type PruneOptions, type Pruned } from './outbox-prune.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());

const outbox = createOutbox({ topics: ['t'] });
const source = createPollSource({ pool });
const signal = new AbortController().signal;
/** Small, so that a test can pass some; and not so small that others on this server pass one meanwhile. */
const stepXids = 4_000n;

beforeEach(async () => {
  await pool.query('DROP SCHEMA IF EXISTS twiceproof CASCADE');
  await migrate(pool);
});

async function append(tx: Tx, ...texts: string[]): Promise<void> {
  const messages = texts.map((text) => ({ topic: 't', aggregateId: 'a', type: 'said', payload: Buffer.from(text) }));
  await outbox.append(tx, messages);
}
const appendNow = async (...texts: string[]): Promise<void> => transaction(pool, (tx) => append(tx, ...texts));

async function drain(): Promise<string[]> {
  const texts: string[] = [];
  for (;;) {
    const batch = await source.next({ maxMessages: 100, waitMs: 0, signal });
    if (!batch) return texts;
    texts.push(...batch.messages.map(({ payload }) => Buffer.from(payload).toString()));
    await batch.advance({ done: batch.messages.length, parked: [] });
  }
}

const now = async (options: Partial<PruneOptions> = {}): Promise<Pruned> =>
  prune(pool, { retention: 0, stepXids, maxWaitMs: 100, attempts: 3, ...options });

/** Where the rows are: the texts by partition. */
async function inPartitions(): Promise<Record<string, string[]>> {
  const { rows } = await pool.query<{ at: string; texts: string[] }>(
    `SELECT tableoid::regclass::text AS at, array_agg(convert_from(payload, 'utf8') ORDER BY id) AS texts
     FROM twiceproof.outbox GROUP BY 1`,
  );
  return Object.fromEntries(rows.map(({ at, texts }) => [at, texts]));
}

/** Uses up transaction ids, until no step that is under way or prepared now is any more. */
async function passSteps(): Promise<void> {
  const count = 3n * stepXids;
  await pool.query(`DO $$ BEGIN FOR n IN 1..${count} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`);
}

/** Until nothing of these texts is left. Others may use this server, and their open transactions hold us up. */
async function untilGone(...texts: string[]): Promise<void> {
  const deadline = Date.now() + 60_000;
  for (;;) {
    // Retention goes by the cursor, and that moves when there is something.
    await appendNow('filler');
    await drain();
    await now();
    const left = Object.values(await inPartitions()).flat();
    if (!texts.some((text) => left.includes(text))) return;
    assert.ok(Date.now() < deadline, `left: ${left.join()}`);
  }
}

async function partitionOf(text: string): Promise<string | undefined> {
  return Object.entries(await inPartitions()).find(([, texts]) => texts.includes(text))?.[0];
}

async function tableExists(name: string): Promise<boolean> {
  return (await pool.query('SELECT WHERE to_regclass($1) IS NOT NULL', [name])).rowCount === 1;
}

test('a row goes when every shard has passed it and it is old enough, with its partition', async () => {
  const { made } = await now();
  assert.equal(made.length, 3, 'the step under way, since nothing is there yet, and two ahead');
  await appendNow('one');
  const home = (await partitionOf('one'))!;
  assert.match(home, /^twiceproof\.outbox_\d+_\d+$/);
  await passSteps();
  await now();
  assert.equal(await partitionOf('one'), home, 'it is not published');
  assert.deepEqual(await drain(), ['one']);
  await appendNow('two');
  await drain();
  await now({ retention: 3_600_000 });
  assert.equal(await partitionOf('one'), home, 'it is not old enough');
  await untilGone('one');
  assert.equal(await tableExists(home), false);
});

test('a writer that commits late into an old partition: its row survives, is published, and goes then', async () => {
  await now();
  const late = await pool.connect();
  try {
    await late.query('BEGIN');
    await append(late, 'late');
    const { rows } = await late.query<{ home: string }>(
      'SELECT tableoid::regclass::text AS home FROM twiceproof.outbox',
    );
    const { home } = rows[0]!;
    assert.match(home, /^twiceproof\.outbox_\d+_\d+$/);
    await appendNow('early');
    await drain();
    await passSteps();
    await appendNow('newer');
    assert.deepEqual(await drain(), ['newer']);
    // Old by id, old by date, and behind rows that are published.
    await now();
    await late.query('COMMIT');
    assert.equal(await partitionOf('late'), home, 'it has survived');
    await now();
    assert.deepEqual(await drain(), ['late'], 'committed, and published');
    await untilGone('late', 'early');
    assert.equal(await tableExists(home), false);
  } finally {
    late.release();
  }
});

test('the default partition keeps to the same rule, and no partition is made over rows that stand there', async () => {
  await appendNow('a', 'b');
  const late = await pool.connect();
  try {
    await late.query('BEGIN');
    await append(late, 'late');
    await appendNow('c');
    await drain();
    await appendNow('unpublished');
    const { made } = await now({ attempts: 2 });
    assert.equal(made.length, 0, 'a writer holds the default partition, and nobody waits for us');
    await late.query('COMMIT');
  } finally {
    late.release();
  }
  const kept = (await inPartitions())['twiceproof.outbox_default']!;
  assert.deepEqual(kept.slice(-3), ['late', 'c', 'unpublished'], 'c may be younger than the late one');
  const { made, left } = await now();
  assert.deepEqual([made.length, left], [2, []], 'ahead only');
  assert.deepEqual(await drain(), ['late', 'unpublished']);
  assert.equal((await now({ retention: 3_600_000 })).deleted, 0);
  await untilGone('a', 'b', 'c', 'late', 'unpublished');
});

test('a writer that is open for long is not waited for, and keeps nobody from writing', async () => {
  await now();
  await appendNow('one');
  await drain();
  await passSteps();
  await appendNow('two');
  await drain();
  const home = (await partitionOf('one'))!;
  const open = await pool.connect();
  try {
    await open.query('BEGIN');
    await append(open, 'open');
    const pruning = now({ maxWaitMs: 20, attempts: 3 });
    let isDone = false;
    const done = pruning.finally(() => (isDone = true));
    let written = 0;
    for (; !isDone; written += 1) await appendNow('more');
    assert.equal((await done).removed.length, 0, 'dropping needs the whole outbox');
    assert.ok(await tableExists(home));
    assert.ok(written > 10, `${written} were written meanwhile`);
    await open.query('COMMIT');
  } finally {
    open.release();
  }
  await untilGone('one');
  assert.equal(await tableExists(home), false);
});

test('cursors of another cluster are nothing to go by', async () => {
  await appendNow('one');
  await pool.query('UPDATE twiceproof.relay_cursor SET system_identifier = system_identifier + 1');
  await assert.rejects(now(), { code: 'TP_CURSOR_FOREIGN' });
  await pool.query(
    `UPDATE twiceproof.relay_cursor SET system_identifier = system_identifier - 1, prev = '99999999999:99999999999:'`,
  );
  await assert.rejects(now(), { code: 'TP_CURSOR_FOREIGN' });
  assert.deepEqual(Object.values(await inPartitions()).flat(), ['one']);
});
