import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { contentHash, createInbox, type Arrived, type Verdict } from './accept.ts';
import { addInboxPartition, forgetPartition, openInbox, raiseCeiling, raiseFloor, readInbox } from './partitions.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
await migrate(pool);
const inbox = createInbox();

const hourMs = 3_600_000;
const now = Math.floor(Date.now() / hourMs) * hourMs;

async function inTransaction<T>(work: (tx: Tx) => Promise<T>): Promise<T> {
  return transaction(pool, work);
}

test('an inbox that nobody has opened accepts nothing, and says so', async () => {
  await assert.rejects(
    inTransaction((tx) => inbox.accept(tx, { consumer: 'c', id: uuidv7() })),
    { code: 'TP_SCHEMA_VERSION', message: /no keeper/ },
  );
});

/** From three hours ago until in an hour, cut by the hour. */
async function opened(): Promise<void> {
  await inTransaction((tx) => openInbox(tx, now - 3 * hourMs));
  for (const n of [-3, -2, -1, 0]) {
    const range = { fromMs: now + n * hourMs, toMs: now + (n + 1) * hourMs };
    await inTransaction((tx) => addInboxPartition(tx, range));
  }
  await inTransaction((tx) => raiseCeiling(tx, now + hourMs));
}

async function acceptAll(consumer: string, messages: Arrived[]): Promise<Verdict[]> {
  return inTransaction((tx) => inbox.acceptAll(tx, consumer, messages));
}

const accept = async (consumer: string, id: string, content?: bigint): Promise<Verdict> =>
  (await acceptAll(consumer, [{ id, ...(content !== undefined && { content }) }]))[0]!;

test('first, then a duplicate; with other content altered; before the floor late; from the ceiling on, of the future', async () => {
  await opened();
  const id = uuidv7(now);
  assert.equal(await accept('c', id, 1n), 'first');
  assert.equal(await accept('c', id, 1n), 'duplicate');
  assert.equal(await accept('c', id, -2n), 'altered');
  assert.equal(await accept('c', id, 1n), 'duplicate');
  assert.deepEqual(
    await acceptAll('bounds', [
      { id: uuidv7(now - 3 * hourMs - 1) },
      { id: uuidv7(now - 3 * hourMs) },
      { id: uuidv7(now + hourMs - 1) },
      { id: uuidv7(now + hourMs) },
    ]),
    ['late', 'first', 'first', 'future'],
  );
});

test('no statistics are collected of a partition: ANALYZE of a large one would read much that is not in memory', async () => {
  const { rows } = await pool.query(
    `SELECT i.inhrelid::regclass AS partition, attname FROM pg_inherits i JOIN pg_attribute a ON a.attrelid = i.inhrelid
     WHERE i.inhparent = 'twiceproof.inbox'::regclass AND a.attnum > 0 AND attstattarget IS DISTINCT FROM 0`,
  );
  assert.deepEqual(rows, []);
  const { rowCount } = await pool.query("SELECT FROM pg_inherits WHERE inhparent = 'twiceproof.inbox'::regclass");
  assert.ok(rowCount! > 0);
});

test('verdicts are at the index of their message, and an id that comes twice in one call is first once', async () => {
  const [a, b, c] = [uuidv7(now), uuidv7(now - hourMs), uuidv7(now - 2 * hourMs)];
  await accept('order', b, 2n);
  const messages = [
    { id: c, content: 3n },
    { id: a, content: 1n },
    { id: b, content: 2n },
    { id: a, content: 1n },
    { id: a, content: 9n },
    { id: b, content: 9n },
  ];
  assert.deepEqual(await acceptAll('order', messages), [
    'first',
    'first',
    'duplicate',
    'duplicate',
    'altered',
    'altered',
  ]);
  assert.deepEqual(await acceptAll('order', []), []);
});

test('what is rolled back was never there', async () => {
  const id = uuidv7(now);
  const failing = inTransaction(async (tx) => {
    assert.equal(await inbox.accept(tx, { consumer: 'c', id }), 'first');
    throw new Error('after it');
  });
  await assert.rejects(failing, /after it/);
  assert.equal(await accept('c', id), 'first');
});

test('consumers do not suppress each other', async () => {
  const id = uuidv7(now);
  assert.deepEqual(
    [await accept('one', id), await accept('two', id), await accept('one', id)],
    ['first', 'first', 'duplicate'],
  );
});

/** Until somebody waits for this client's transaction. */
async function untilSomebodyWaitsFor(client: pg.PoolClient): Promise<void> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  for (;;) {
    const waiting = await pool.query('SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))', [
      rows[0]!.pid,
    ]);
    if (waiting.rowCount) return;
  }
}

for (const [end, verdict] of [
  ['COMMIT', 'duplicate'],
  ['ROLLBACK', 'first'],
] as const) {
  test(`two at once: the second waits for the first, and after its ${end} it is ${verdict}`, async () => {
    const ids = [uuidv7(now), uuidv7(now)];
    const first = await pool.connect();
    await first.query('BEGIN');
    assert.deepEqual(
      await inbox.acceptAll(
        first,
        'c',
        ids.map((id) => ({ id })),
      ),
      ['first', 'first'],
    );
    const second = acceptAll(
      'c',
      ids.toReversed().map((id) => ({ id })),
    );
    await untilSomebodyWaitsFor(first);
    await first.query(end);
    first.release();
    assert.deepEqual(await second, [verdict, verdict]);
  });
}

test('two that accept the same ids in another order do not wait for each other', async () => {
  const [low, middle, high] = [now, now + 1, now + 2].map((time) => ({ id: uuidv7(time) }));
  const gate = await pool.connect();
  await gate.query('BEGIN');
  await inbox.accept(gate, { consumer: 'c', ...middle! });
  // Once the gate is open, either has one end and wants the other; unless both have begun at the same end.
  const accepting = [
    [low!, middle!, high!],
    [high!, middle!, low!],
  ].map(async (messages) => transaction(pool, (tx) => inbox.acceptAll(tx, 'c', messages), { retries: 0 }));
  const waiting = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
  while ((await pool.query(waiting)).rowCount !== 2);
  await gate.query('ROLLBACK');
  gate.release();
  const verdicts = (await Promise.all(accepting)).map((those) => new Set(those));
  assert.deepEqual(
    new Set(verdicts.map((those) => [...those].join())),
    new Set(['first', 'duplicate']),
    'one has all of them, and the other none',
  );
});

test('in a snapshot of before, what another has committed is no first', async () => {
  const id = uuidv7(now);
  let attempts = 0;
  const verdict = await transaction(
    pool,
    async (tx) => {
      attempts += 1;
      await tx.query('SELECT 1');
      if (attempts === 1) await accept('c', id);
      return inbox.accept(tx, { consumer: 'c', id });
    },
    { isolation: 'REPEATABLE READ' },
  );
  assert.deepEqual([verdict, attempts], ['duplicate', 2]);
});

test('what is no transaction is refused, and what is no UUIDv7; capitals are the same id', async () => {
  const id = uuidv7(now);
  await assert.rejects(inbox.accept(pool, { consumer: 'c', id }), { code: 'TP_NOT_IN_TRANSACTION' });
  const client = await pool.connect();
  await assert.rejects(inbox.accept(client, { consumer: 'c', id }), { code: 'TP_NOT_IN_TRANSACTION' });
  client.release();
  for (const wrong of ['', 'x', '0190163d-8694-4234-8abc-0123456789ab', `${id} `, '7']) {
    await assert.rejects(acceptAll('c', [{ id }, { id: wrong }]), { code: 'TP_MESSAGE_INVALID' }, wrong);
  }
  assert.deepEqual(await acceptAll('c', [{ id: id.toUpperCase() }, { id }]), ['first', 'duplicate']);
  assert.equal(await accept('c', id.toUpperCase()), 'duplicate');
});

test('one of a forgotten partition that has read the old floor fails closed, and its second attempt finds it late', async () => {
  const id = uuidv7(now - 3 * hourMs);
  assert.equal(await accept('fence', id), 'first');
  let attempts = 0;
  const verdict = await transaction(
    pool,
    async (tx) => {
      attempts += 1;
      // The snapshot is of before all that follows.
      await tx.query('SELECT 1');
      if (attempts === 1) await forgetFirstHour();
      return inbox.accept(tx, { consumer: 'fence', id });
    },
    { isolation: 'REPEATABLE READ' },
  );
  assert.deepEqual([verdict, attempts], ['late', 2]);
});

async function forgetFirstHour(): Promise<void> {
  await inTransaction((tx) => raiseFloor(tx, now - 2 * hourMs));
  const { partitions } = await inTransaction((tx) => readInbox(tx));
  for (const statement of forgetPartition(partitions[0]!)) await pool.query(statement);
}

test('a duplicate whose partition begins to go before its content is compared is not taken for altered', async () => {
  const id = uuidv7(now - 2 * hourMs);
  assert.equal(await accept('pending', id, 5n), 'first');
  let attempts = 0;
  const verdict = await transaction(pool, async (tx) => {
    attempts += 1;
    const between: Tx = {
      query: async (text, values) => {
        const isContent = text.startsWith('SELECT msg_id');
        if (isContent && attempts === 1) await beginToForgetSecondHour();
        return tx.query(text, values);
      },
    };
    return inbox.accept(between, { consumer: 'pending', id, content: 5n });
  });
  assert.deepEqual([verdict, attempts], ['late', 2]);
});

/** It waits for the transaction that we are in, so it is given up; the detach stays pending. */
async function beginToForgetSecondHour(): Promise<void> {
  await inTransaction((tx) => raiseFloor(tx, now - hourMs));
  const { partitions } = await inTransaction((tx) => readInbox(tx));
  const client = await pool.connect();
  await client.query('SET lock_timeout = 50');
  await assert.rejects(client.query(forgetPartition(partitions[0]!)[0]!), { code: '55P03' });
  client.release(true);
}

test('the hash of the content stays what it is: it stands in the inboxes of those who run this', () => {
  const message = { type: 'created', aggregateId: 'ä', payload: Buffer.from('{}') };
  assert.equal(contentHash(message), -7_800_611_230_919_573_846n);
});

test('the hash of the content: nothing can move from one part to the next, and headers do not count', () => {
  const base = { type: 'ab', aggregateId: 'c', payload: Buffer.from('d') };
  const hash = contentHash(base);
  const withHeaders = { ...base, topic: 't', headers: { x: '1' } };
  assert.equal(contentHash(withHeaders), hash);
  for (const other of [
    { type: 'a', aggregateId: 'bc' },
    { type: 'abc', aggregateId: '' },
    { aggregateId: 'c 1' },
    { payload: Buffer.from('e') },
    { aggregateId: '', payload: Buffer.from('cd') },
  ]) {
    assert.notEqual(contentHash({ ...base, ...other }), hash);
  }
});
