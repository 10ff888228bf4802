import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { createKit, hold, numbered, take, takeRest, textsOf } from '../conformance/source-kit.ts';
import { postgresHarness } from '../conformance/source-postgres.ts';
import { testSource } from '../conformance/source.ts';
import { migrate } from '../migrations/migrate.ts';
import type { Pool, PoolClient } from '../connection.ts';
import { createPollSource } from './poll.ts';

const { url } = await testDatabase();
const pool = openPool('tests');
after(async () => pool.end());

function openPool(name: string): pg.Pool {
  const opened = new pg.Pool({ connectionString: url, application_name: name });
  opened.on('error', () => {});
  return opened;
}

/** Windows here are larger than the list that is kept of one, and that is larger than most batches. */
const maxListed = 7;

let throughPool = (ofSource: Pool): Pool => ofSource;

const harness = postgresHarness({
  openPool,
  migrate,
  createSource: (ofSource, schema) =>
    createPollSource({ pool: throughPool(ofSource), schema, maxListed, pollIntervalMs: 5 }),
  holdsSeveral: true,
});

testSource('poll', harness);

/** The schema of the outbox that was made last. */
async function schemaOf(): Promise<string> {
  const { rows } = await pool.query<{ name: string }>(
    "SELECT nspname AS name FROM pg_namespace WHERE nspname LIKE 'outbox%' ORDER BY oid DESC LIMIT 1",
  );
  return rows[0]!.name;
}

async function untilRows(text: string): Promise<Record<string, unknown>[]> {
  const deadline = performance.now() + 20_000;
  for (;;) {
    const { rows } = await pool.query<Record<string, unknown>>(text);
    if (rows.length > 0) return rows;
    assert.ok(performance.now() < deadline, `no rows in time: ${text}`);
    await delay(5);
  }
}

test('the outbox is a log: a row that was published stays as it was written, for who wants to publish it again', async () => {
  await using kit = await createKit(harness, 1);
  const { source } = await kit.openSource();
  await kit.write(...numbered('a', 1, 20));
  await take(source, 20, 6);
  const { rows } = await pool.query(
    `SELECT count(*)::int AS rows, count(*) FILTER (WHERE xmax = 0)::int AS untouched FROM ${await schemaOf()}.outbox`,
  );
  assert.deepEqual(rows, [{ rows: 20, untouched: 20 }]);
});

test('an idle source moves no cursor', async () => {
  await using kit = await createKit(harness, 4);
  const { source } = await kit.openSource();
  await kit.write('a1', 'b1');
  await take(source, 2);
  const cursors = `SELECT shard, xmin, advanced_at::text FROM ${await schemaOf()}.relay_cursor ORDER BY shard`;
  await takeRest(source);
  const before = (await pool.query(cursors)).rows;
  await takeRest(source);
  assert.deepEqual((await pool.query(cursors)).rows, before);
});

test('a cursor that has not moved for a minute moves, since retention goes by it', async () => {
  await using kit = await createKit(harness, 2);
  const { source } = await kit.openSource();
  const schema = await schemaOf();
  await pool.query(`UPDATE ${schema}.relay_cursor SET advanced_at = now() - interval '2 minutes'`);
  await kit.write('a1');
  const { rows: before } = await pool.query<{ xid: string }>(
    'SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS xid',
  );
  await takeRest(source);
  const { rows } = await pool.query(
    `SELECT bool_and(pg_snapshot_xmax(prev) >= $1::xid8) AS moved FROM ${schema}.relay_cursor`,
    [before[0]!.xid],
  );
  assert.deepEqual(rows, [{ moved: true }]);
});

test('with nothing to wait for: what is committed comes at once, also behind an empty window', async () => {
  await using kit = await createKit(harness, 4);
  const { source } = await kit.openSource();
  const signal = new AbortController().signal;
  await pool.query(`UPDATE ${await schemaOf()}.relay_cursor SET advanced_at = now() - interval '2 minutes'`);
  for (const size of [1, 2, 3, 4]) {
    await kit.write(...numbered('a', 1, size));
    const batch = await source.next({ maxMessages: 2, waitMs: 0, signal });
    assert.deepEqual(textsOf(batch!.messages), numbered('a', 1, Math.min(size, 2)));
    await kit.write(`a${size + 1}`);
    await batch!.advance({ done: batch!.messages.length, parked: [] });
    const came = [...batch!.messages];
    for (let n = 0; n < size; n += 1) {
      const next = await source.next({ maxMessages: 2, waitMs: 0, signal });
      if (!next) break;
      came.push(...next.messages);
      await next.advance({ done: next.messages.length, parked: [] });
    }
    assert.deepEqual(textsOf(came), numbered('a', 1, size + 1));
  }
});

test('a shard is read once in an interval while less than whole batches come; whole ones come without a pause', async () => {
  await using kit = await createKit(harness, 1);
  const pollIntervalMs = 400;
  const source = createPollSource({ pool, schema: await schemaOf(), maxListed, pollIntervalMs });
  const { signal } = new AbortController();
  const takeOne = async (): Promise<number> => {
    const batch = await source.next({ maxMessages: 2, waitMs: 10_000, signal });
    await batch!.advance({ done: batch!.messages.length, parked: [] });
    return batch!.messages.length;
  };
  await kit.write(...numbered('a', 1, 5));
  const began = performance.now();
  assert.deepEqual([await takeOne(), await takeOne(), await takeOne()], [2, 2, 1]);
  const wholeMs = performance.now() - began;
  await kit.write('a6');
  assert.equal(await takeOne(), 1);
  const tookMs = performance.now() - began;
  assert.ok(tookMs >= pollIntervalMs && wholeMs < tookMs, `${wholeMs} and ${tookMs} ms`);
});

/** A connection of which each statement is told before it goes, and when it is answered. */
async function connectHeard(
  ofSource: Pool,
  hear: (text: string, send: (other: string) => Promise<unknown>) => Promise<void>,
  answered?: (text: string) => Promise<void>,
): Promise<PoolClient> {
  const client = await ofSource.connect();
  const { query, release } = client;
  client.query = async (...args: Parameters<PoolClient['query']>) => {
    const text = (args[0] as unknown as { text?: string }).text ?? args[0];
    await hear(text, async (other) => query.call(client, other));
    const answer = await query.apply(client, args);
    await answered?.(text);
    return answer;
  };
  client.release = (destroy) => {
    Object.assign(client, { query, release });
    client.release(destroy);
  };
  return client;
}

test('a page that was read ahead for nothing, since the next batch is of another size, takes nothing along', async (t) => {
  // By the time that the rows of the page are asked for, the next batch has been, too.
  const slowly = async (text: string): Promise<void> => {
    if (text.includes('xid = ANY ($2')) await delay(30);
  };
  throughPool = (ofSource) => ({ connect: async () => connectHeard(ofSource, slowly) });
  t.after(() => {
    throughPool = (ofSource) => ofSource;
  });
  await using kit = await createKit(harness, 1);
  const { source } = await kit.openSource();
  await kit.write(...numbered('a', 1, 30));
  const came: string[] = [];
  for (const size of [2, 3, 4, 5, 6, 10]) came.push(...textsOf(await take(source, size, size)));
  assert.deepEqual(came, numbered('a', 1, 30));
});

test('a page that comes when its transaction is over already, while another reads by the same list, takes nothing along', async (t) => {
  const pages = [1, 2].map(() => ({ read: Promise.withResolvers<void>(), given: Promise.withResolvers<void>() }));
  let isWithheld = false;
  let pagesRead = 0;
  const answered = async (text: string): Promise<void> => {
    if (!isWithheld || !text.includes('xid = ANY ($2')) return;
    const page = pages[pagesRead++]!;
    page.read.resolve();
    await page.given.promise;
  };
  throughPool = (ofSource) => ({ connect: async () => connectHeard(ofSource, async () => {}, answered) });
  t.after(() => {
    throughPool = (ofSource) => ofSource;
  });
  await using kit = await createKit(harness, 1);
  const { source, cut } = await kit.openSource();
  // While anything is parked, no page is read ahead.
  await kit.write('bad1');
  await (await hold(source)).advance({ done: 1, parked: [{ index: 0, reason: 'cannot be' }] });
  await kit.write(...numbered('a', 1, 30));
  const came = await take(source, 3, 3);
  isWithheld = true;
  const first = hold(source, 2);
  await pages[0]!.read.promise;
  await cut();
  const second = hold(source, 2);
  await pages[1]!.read.promise;
  isWithheld = false;
  pages[0]!.given.resolve();
  const over = await first;
  pages[1]!.given.resolve();
  const batch = await second;
  await assert.rejects(over.advance({ done: 2, parked: [] }));
  await batch.advance({ done: 2, parked: [] });
  came.push(...batch.messages, ...(await takeRest(source, 3)));
  assert.deepEqual(textsOf(came), numbered('a', 1, 30));
});

test('a page that cannot be read holds up none before it', async (t) => {
  let isDamaged = true;
  let hasPage = false;
  // What is read in a transaction that has its page is the next one. It fails in the server, as on a damaged row.
  const fail = async (text: string, send: (other: string) => Promise<unknown>): Promise<void> => {
    if (text.startsWith('BEGIN')) hasPage = false;
    const isPage = text.includes('AS created');
    if ((isPage || text.includes('AS listed')) && hasPage && isDamaged) await send('SELECT 1 / 0');
    hasPage ||= isPage;
  };
  throughPool = (ofSource) => ({ connect: async () => connectHeard(ofSource, fail) });
  t.after(() => {
    throughPool = (ofSource) => ofSource;
  });
  await using kit = await createKit(harness, 1);
  const { source } = await kit.openSource();
  await kit.write(...numbered('a', 1, 12));
  const first = await hold(source, 5);
  await assert.rejects(first.advance({ done: 5, parked: [] }), 'its transaction is over');
  const again = await hold(source, 5);
  await again.advance({ done: 5, parked: [] });
  assert.deepEqual(textsOf(again.messages), numbered('a', 1, 5));
  isDamaged = false;
  assert.deepEqual(textsOf(await takeRest(source, 5)), numbered('a', 6, 12));
});

test('a window of many pages is sorted once for all that the list has room for, and not for each page', async (t) => {
  const sorted: string[] = [];
  const noting = async (text: string): Promise<void> => {
    if (/ORDER BY id LIMIT/.test(text)) sorted.push(text);
  };
  throughPool = (ofSource) => ({ connect: async () => connectHeard(ofSource, noting) });
  t.after(() => {
    throughPool = (ofSource) => ofSource;
  });
  await using kit = await createKit(harness, 1);
  const { source } = await kit.openSource();
  for (let n = 1; n <= 28; n += 1) await kit.write(`a${n}`);
  assert.deepEqual(textsOf(await take(source, 28, 1)), numbered('a', 1, 28));
  assert.equal(sorted.length, 4, 'three lists of one more than there is room for, and the rest');
  sorted.length = 0;
  for (let n = 29; n <= 28 + maxListed; n += 1) await kit.write(`a${n}`);
  assert.deepEqual(textsOf(await take(source, maxListed, 1)), numbered('a', 29, 28 + maxListed));
  assert.equal(sorted.length, 1, 'what just fits is not looked for again');
});

test('a batch of large payloads ends when it has enough bytes, and nothing is missed or overtaken', async () => {
  await using kit = await createKit(harness, 1);
  const schema = await schemaOf();
  const source = createPollSource({ pool, schema, maxListed, maxBytes: 250_000 });
  const written = numbered('a', 1, 23);
  await kit.write(...written);
  // Small ones between large ones, and one that is larger than what a batch may have.
  const enlarge = `UPDATE ${schema}.outbox SET payload = payload || ' ' || $1 WHERE payload = $2`;
  for (const text of written.filter((_, n) => n % 4 !== 0)) await pool.query(enlarge, [randomBytes(100_000), text]);
  await pool.query(enlarge, [randomBytes(300_000), 'a5']);
  const { signal } = new AbortController();
  const came: string[] = [];
  const bytesBeforeLast: number[] = [];
  for (;;) {
    const batch = await source.next({ maxMessages: 10, waitMs: 0, signal });
    if (!batch) break;
    came.push(...batch.messages.map(({ payload }) => Buffer.from(payload).toString('latin1').split(' ')[0]!));
    bytesBeforeLast.push(batch.messages.slice(0, -1).reduce((sum, { payload }) => sum + payload.length, 0));
    await batch.advance({ done: batch.messages.length, parked: [] });
  }
  assert.deepEqual(came, written);
  assert.ok(bytesBeforeLast.length >= 6, `${bytesBeforeLast.length} batches`);
  assert.ok(
    bytesBeforeLast.every((bytes) => bytes < 250_000),
    bytesBeforeLast.join(' '),
  );
});

test('bounds that leave room for nothing are refused: a page without rows would be taken for the last one', () => {
  for (const wrong of [{ maxBytes: 0 }, { maxListed: 0 }, { maxListed: 1.5 }]) {
    assert.throws(() => createPollSource({ pool, ...wrong }), { code: 'TP_OPTION' });
  }
});

test('a batch of payloads that could be compressed is bounded by what they are when they are read', async () => {
  await using kit = await createKit(harness, 1);
  const schema = await schemaOf();
  const source = createPollSource({ pool, schema, maxListed, maxBytes: 250_000 });
  await kit.write(...numbered('a', 1, 20));
  await pool.query(`UPDATE ${schema}.outbox SET payload = payload || convert_to(repeat(' ', 100000), 'utf8')`);
  const batch = await hold(source, 20);
  assert.equal(batch.messages.length, 3, 'the third one makes it more than enough');
  await batch.abandon();
});

test('what is put aside is what stands in the outbox, to the microsecond', async () => {
  await using kit = await createKit(harness, 1);
  const { source } = await kit.openSource();
  await kit.write(...numbered('bad', 1, 50));
  const batch = await hold(source, 50);
  await batch.advance({ done: 50, parked: [{ index: 0, reason: 'cannot be' }] });
  await kit.write(...numbered('bad', 51, 100));
  assert.deepEqual(await takeRest(source), []);
  const columns = 'shard, topic, aggregate_id, msg_id, event_type, payload, headers::text, created_at';
  const { rows } = await pool.query<{ count: number }>(
    `SELECT count(*)::int FROM (SELECT ${columns} FROM ${await schemaOf()}.outbox
       INTERSECT SELECT ${columns} FROM ${await schemaOf()}.relay_parked) AS same`,
  );
  assert.equal(rows[0]!.count, 51, 'the first, and those behind it');
});

test('a key that is parked while the next page was read ahead is not overtaken by that page', async () => {
  await using kit = await createKit(harness, 1);
  const source = createPollSource({ pool, schema: await schemaOf(), maxListed });
  await kit.write('x1', 'x2', 'bad1', 'a1', 'bad2', 'a2', 'bad3', 'a3');
  await take(source, 2, 2);
  const batch = await hold(source, 2);
  assert.deepEqual(textsOf(batch.messages), ['bad1', 'a1']);
  await batch.advance({ done: 2, parked: [{ index: 0, reason: 'cannot be' }] });
  assert.deepEqual(textsOf(await takeRest(source, 2)), ['a2', 'a3']);
  assert.deepEqual(textsOf(await kit.outbox.parked()), ['bad1', 'bad2', 'bad3']);
});

/** What a pooler that gives each transaction another connection does to the names of statements. */
const losses = {
  'all are gone': 'true',
  'those within a transaction are gone': "statement NOT LIKE '%has_large%'",
} as const;

for (const [loss, which] of Object.entries(losses)) {
  test(`names of statements that a pooler does not carry along are done without: ${loss}`, async () => {
    await using kit = await createKit(harness, 1);
    const single = new pg.Pool({ connectionString: url, max: 1 });
    try {
      const source = createPollSource({ pool: single, schema: await schemaOf(), maxListed });
      await kit.write(...numbered('a', 1, 30));
      await take(source, 10, 4);
      const { rows } = await single.query<{ name: string }>(`SELECT name FROM pg_prepared_statements WHERE ${which}`);
      assert.notEqual(rows.length, 0);
      await single.query(rows.map(({ name }) => `DEALLOCATE ${name}`).join('; '));
      assert.deepEqual(textsOf(await take(source, 20, 4)), numbered('a', 11, 30));
      const { rows: left } = await single.query('SELECT FROM pg_prepared_statements');
      assert.ok(left.length <= 1, 'none was given a name again');
    } finally {
      await single.end();
    }
  });
}

test('names of statements that somebody else has on the connection are done without', async () => {
  await using kit = await createKit(harness, 1);
  const schema = await schemaOf();
  const [ours, shared] = [0, 1].map(() => new pg.Pool({ connectionString: url, max: 1 })) as [pg.Pool, pg.Pool];
  try {
    await kit.write(...numbered('a', 1, 20));
    await take(createPollSource({ pool: ours, schema, maxListed }), 10, 4);
    const { rows } = await ours.query<{ name: string }>('SELECT name FROM pg_prepared_statements');
    await shared.query(rows.map(({ name }) => `PREPARE ${name} AS SELECT 1`).join('; '));
    const rest = await take(createPollSource({ pool: shared, schema, maxListed }), 10, 4);
    assert.deepEqual(textsOf(rest), numbered('a', 11, 20));
  } finally {
    await Promise.all([ours.end(), shared.end()]);
  }
});

test('the isolation that is usual on the server makes no difference', async () => {
  await using kit = await createKit(harness, 1);
  const schema = await schemaOf();
  const strict = new pg.Pool({ connectionString: url, options: '-c default_transaction_isolation=serializable' });
  try {
    const source = createPollSource({ pool: strict, schema });
    await kit.write('a1');
    const batch = await hold(source);
    // Such locks are what a serializable transaction remembers its reading by.
    const { rows } = await pool.query(
      `SELECT relation::regclass FROM pg_locks l JOIN pg_database d ON d.oid = l.database
       WHERE mode = 'SIReadLock' AND datname = current_database()`,
    );
    await batch.advance({ done: 1, parked: [] });
    assert.deepEqual(rows, []);
  } finally {
    await strict.end();
  }
});

test('a connection that dies while rows are put behind a parked one is said to have died, and nothing is lost', async () => {
  await using kit = await createKit(harness, 1);
  const { source } = await kit.openSource();
  const schema = await schemaOf();
  await kit.write('bad1');
  const batch = await hold(source);
  await batch.advance({ done: 1, parked: [{ index: 0, reason: 'cannot be' }] });
  await kit.write('bad2');
  const blocker = await pool.connect();
  await blocker.query(`BEGIN; LOCK TABLE ${schema}.relay_parked IN SHARE MODE`);
  try {
    const waiting = assert.rejects(hold(source), { code: '57P01' });
    const [waiter] = await untilRows(
      `SELECT pid FROM pg_locks WHERE relation = '${schema}.relay_parked'::regclass AND NOT granted`,
    );
    await pool.query('SELECT pg_terminate_backend($1)', [waiter!['pid']]);
    await waiting;
  } finally {
    await blocker.query('ROLLBACK');
    blocker.release();
  }
  assert.deepEqual(await takeRest(source), []);
  assert.deepEqual(textsOf(await kit.outbox.parked()), ['bad1', 'bad2']);
});

test('a batch cannot be advanced by more than it has, or by less than nothing', async () => {
  await using kit = await createKit(harness, 1);
  const { source } = await kit.openSource();
  await kit.write('a1', 'a2');
  const batch = await hold(source);
  for (const done of [-1, 3, 0.5, Number.NaN]) await assert.rejects(batch.advance({ done, parked: [] }), RangeError);
  await batch.advance({ done: 1, parked: [] });
  assert.deepEqual(textsOf(await take(source, 1)), ['a2']);
});

test('rows of the outbox that were deleted before they were published are missed aloud', async () => {
  await using kit = await createKit(harness, 1);
  const schema = await schemaOf();
  // What is gone before it was listed is missed by nobody, so the list has room for all of them.
  const source = createPollSource({ pool, schema, maxListed: 100, pollIntervalMs: 5 });
  await kit.write(...numbered('a', 1, 12));
  // What others do draws numbers too, and decides whether the first page is read by a list already.
  for (let n = 0; n < 5; n += 1) await pool.query('SELECT pg_current_xact_id()');
  await take(source, 6, 3);
  // The page before has been read ahead.
  await pool.query(`DELETE FROM ${schema}.outbox WHERE payload = 'a10'`);
  assert.deepEqual(textsOf(await take(source, 3, 3)), numbered('a', 7, 9));
  await assert.rejects(hold(source, 3), { code: 'TP_OUTBOX_CHANGED' });
});

test('a database that must not be published from is refused, with the reason', async () => {
  await using kit = await createKit(harness, 2);
  const { source } = await kit.openSource();
  const schema = await schemaOf();
  const withChange = async (change: string, undo: string, code: string): Promise<void> => {
    await pool.query(change);
    await assert.rejects(source.check(), { code });
    await pool.query(undo);
    await source.check();
  };
  await withChange(
    `UPDATE ${schema}.relay_cursor SET system_identifier = system_identifier + 1 WHERE shard = 1`,
    `UPDATE ${schema}.relay_cursor SET system_identifier = system_identifier - 1 WHERE shard = 1`,
    'TP_CURSOR_FOREIGN',
  );
  await withChange(
    `UPDATE ${schema}.settings SET shards = 3`,
    `UPDATE ${schema}.settings SET shards = 2`,
    'TP_SCHEMA_VERSION',
  );
  await pool.query(`UPDATE ${schema}.relay_cursor SET prev = '900000000000:900000000000:' WHERE shard = 0`);
  await assert.rejects(source.check(), { code: 'TP_CURSOR_FOREIGN' });
  // Also where nobody asked: the server may have been restored while this source was connected to it.
  await pool.query(`UPDATE ${schema}.relay_cursor SET advanced_at = now() - interval '2 minutes'`);
  await assert.rejects(hold(source), { code: 'TP_CURSOR_FOREIGN' });
});

test('timeouts that are usual for its user do not stop a backlog', async () => {
  await using kit = await createKit(harness, 1);
  const hasty = new pg.Pool({
    connectionString: url,
    options: '-c statement_timeout=1000 -c transaction_timeout=1000',
  });
  hasty.on('error', () => {});
  let isFirst = true;
  const slowly = async (text: string, send: (other: string) => Promise<unknown>): Promise<void> => {
    if (!isFirst || !text.includes('o.payload')) return;
    isFirst = false;
    await send('SELECT pg_sleep(1.5)');
  };
  const slow = { connect: async () => connectHeard(hasty, slowly) };
  try {
    const source = createPollSource({ pool: slow, schema: await schemaOf(), maxListed });
    await kit.write(...numbered('a', 1, 5));
    assert.deepEqual(textsOf(await take(source, 5, 2)), numbered('a', 1, 5));
    assert.equal(isFirst, false, 'a page took longer than those timeouts');
  } finally {
    await hasty.end();
  }
});

test('a time that is infinite stops nobody: it cannot be published, and so it can be put aside', async () => {
  await using kit = await createKit(harness, 1);
  const { source } = await kit.openSource();
  await kit.write('a1', 'b1', 'c1', 'd1');
  const schema = await schemaOf();
  await pool.query(`UPDATE ${schema}.outbox SET created_at = 'infinity' WHERE payload = 'b1'`);
  await pool.query(`UPDATE ${schema}.outbox SET created_at = '-infinity' WHERE payload = 'c1'`);
  const batch = await hold(source);
  assert.deepEqual(textsOf(batch.messages), ['a1', 'b1', 'c1', 'd1']);
  assert.throws(() => batch.messages[1]!.createdAt.toISOString(), RangeError);
  await batch.advance({ done: 4, parked: [{ index: 1, reason: 'no time' }] });
  assert.deepEqual(textsOf(await kit.outbox.parked()), ['b1']);
});
