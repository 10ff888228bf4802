import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { transaction } from '../transaction.ts';
import type { Delivery } from '../transport.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { createHeld, recordHash, type HeldKind, type HeldRow, type ToHold } from './held.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
await migrate(pool);
const held = createHeld();

beforeEach(async () => {
  await pool.query('TRUNCATE twiceproof.held, twiceproof.held_settled RESTART IDENTITY');
});

async function inTransaction<T>(work: (tx: Tx) => Promise<T>): Promise<T> {
  return transaction(pool, work);
}

let nextOffset = 0n;
function delivery(text: string, over: Partial<Delivery> = {}): Delivery {
  const lane = { topic: 't', partition: 0 };
  const position = { ...lane, offset: (nextOffset += 1n) };
  return { lane, key: Buffer.from('k'), value: Buffer.from(text), headers: [], position, ...over };
}

function toHold(kind: HeldKind, text: string, over: Partial<ToHold> = {}): ToHold {
  const its = delivery(text);
  return {
    kind,
    delivery: its,
    topicId: 'topic-1',
    aggregateId: text.replace(/\d+$/, ''),
    id: uuidv7(),
    content: recordHash(its),
    reason: 'because',
    ...over,
  };
}

const hold = async (...messages: ToHold[]): Promise<bigint[]> =>
  (await inTransaction((tx) => held.hold(tx, 'c', messages))).map(({ seq }) => seq);
const textsOf = (rows: readonly ToHold[]): string[] => rows.map((row) => Buffer.from(row.delivery.value).toString());

test('a record comes back as it was: any bytes, headers in their order, and no key where there was none', async () => {
  const bytes = Buffer.from([0, 255, 0xfe, 10]);
  const odd = delivery('', {
    key: undefined,
    value: bytes,
    headers: [
      ['b', bytes],
      ['a', Buffer.from('')],
      ['b', Buffer.from('again')],
    ],
  });
  const reason = `a NUL \0 and half of ${'\u{1F511}'.slice(0, 1)} ${'x'.repeat(3_000)}`;
  const [row] = await inTransaction((tx) =>
    held.hold(tx, 'c', [{ kind: 'unreadable', delivery: odd, topicId: 'topic-1', content: -7n, reason }]),
  );
  const { seq, heldAt, ...rest } = row!;
  assert.equal(seq, 1n);
  assert.ok(heldAt instanceof Date);
  assert.equal(rest.reason.length, 2_000);
  assert.ok(rest.reason.startsWith('a NUL \uFFFD and half of \uFFFD x'));
  assert.deepEqual(rest.delivery, odd);
  assert.deepEqual([rest.aggregateId, rest.id, rest.content, rest.asked], [undefined, undefined, -7n, undefined]);
});

test('the longest key is held, also one of many NULs', async () => {
  const letters = Array.from({ length: 1_300 }, () => String.fromCharCode(33 + randomInt(90)));
  // The server gives up compressing what it has begun with.
  for (const key of [`${letters.join('')}${'\0'.repeat(700)}`, '\0'.repeat(2_000)]) {
    const its = delivery('text', { key: Buffer.from(key) });
    const messages = [toHold('parked', 'text', { delivery: its, aggregateId: key })];
    const [row] = await inTransaction((tx) => held.hold(tx, 'c', messages));
    assert.deepEqual(row!.delivery.key, its.key);
    const blocked = await inTransaction((tx) => held.blockedKeys(tx, 'c', [key, 'another']));
    assert.deepEqual([...blocked], [key]);
  }
});

test('what the inbox has no row of is held once, however often it comes; with other content it is another', async () => {
  for (const kind of ['late', 'future', 'altered'] as const) {
    const once = toHold(kind, `${kind}1`);
    const elsewhere = { ...once, delivery: delivery(`${kind}1`) };
    assert.equal((await hold(once, once, elsewhere)).length, 1);
    assert.equal((await hold(elsewhere)).length, 0);
    assert.equal((await hold({ ...once, content: once.content + 1n })).length, 1, 'skipped in silence');
  }
  const record = toHold('unreadable', 'x', { id: undefined, aggregateId: undefined });
  assert.equal((await hold(record, record)).length, 1);
  assert.equal((await hold(record, { ...record, content: 0n })).length, 1, 'an offset that was given again');
  const another = { ...record, topicId: 'topic-2' };
  assert.equal((await hold(another)).length, 1, 'a topic that was created again');
  const withoutPosition = { ...record, delivery: { ...record.delivery } };
  delete withoutPosition.delivery.position;
  assert.equal((await hold(withoutPosition, withoutPosition)).length, 2, 'one cannot be told from the other');
});

test('what the inbox has a row of is always held, also at an offset where something is', async () => {
  const one = toHold('parked', 'a1');
  const other = { ...toHold('dead', 'a2'), delivery: one.delivery };
  assert.equal((await hold(one, other)).length, 2);
});

test('only parked ones block their key, of their consumer', async () => {
  await hold(toHold('parked', 'a1'), toHold('dead', 'b1'), toHold('late', 'c1'));
  const blocked = await inTransaction((tx) => held.blockedKeys(tx, 'c', ['a', 'b', 'c', 'd']));
  assert.deepEqual([...blocked], ['a']);
  assert.equal((await inTransaction((tx) => held.blockedKeys(tx, 'other', ['a']))).size, 0);
});

test('who asks for a key waits for whoever works its last one off, and then it is free', async () => {
  const [seq] = await hold(toHold('parked', 'a1'));
  const client = await pool.connect();
  await client.query('BEGIN');
  assert.equal((await held.take(client, [seq!])).length, 1);
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  const asking = inTransaction((tx) => held.blockedKeys(tx, 'c', ['a']));
  const waiting = 'SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))';
  while ((await pool.query(waiting, [rows[0]!.pid])).rowCount === 0);
  await client.query('COMMIT');
  client.release();
  assert.equal((await asking).size, 0);
});

for (const gated of ['a', 'b']) {
  test(`one who takes several and one who asks for their keys do not wait for each other (behind ${gated})`, async () => {
    // The keys are in another order than the numbers.
    const seqs = await hold(toHold('parked', 'b1'), toHold('parked', 'a1'));
    const gate = await pool.connect();
    await gate.query('BEGIN');
    await gate.query('SELECT FROM twiceproof.held WHERE aggregate_id = $1 FOR UPDATE', [gated]);
    const waiting = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    const taking = transaction(pool, (tx) => held.take(tx, seqs), { retries: 0 });
    while ((await pool.query(waiting)).rowCount !== 1);
    const asking = transaction(pool, (tx) => held.blockedKeys(tx, 'c', ['b', 'a']), { retries: 0 });
    while ((await pool.query(waiting)).rowCount !== 2);
    await gate.query('ROLLBACK');
    gate.release();
    assert.deepEqual([(await taking).length, (await asking).size], [2, 0]);
  });
}

test('the first ones of keys, and what is taken, are in the order of their numbers, and not of their letters', async () => {
  await hold(...Array.from({ length: 12 }, (_, n) => toHold('parked', `${n % 2 ? 'b' : 'a'}${n}`)));
  await hold(toHold('dead', 'a12'), toHold('parked', 'c13'));
  const seqsOf = async (ofEach: number): Promise<bigint[]> =>
    (await inTransaction((tx) => held.firstOfKeys(tx, 'c', ['b', 'a', 'x'], ofEach))).map(({ seq }) => seq);
  assert.deepEqual(await seqsOf(2), [1n, 2n, 3n, 4n]);
  const all = await seqsOf(20);
  assert.deepEqual(
    all,
    Array.from({ length: 12 }, (_, n) => BigInt(n + 1)),
  );
  const taken = await inTransaction((tx) => held.take(tx, all.toReversed()));
  assert.deepEqual(
    taken.map(({ seq }) => seq),
    all,
  );
});

test('a row is taken once, and is there again after a rollback', async () => {
  const [seq] = await hold(toHold('dead', 'a1'));
  const failing = inTransaction(async (tx) => {
    assert.deepEqual(textsOf(await held.take(tx, [seq!])), ['a1']);
    throw new Error('no');
  });
  await assert.rejects(failing, /no/);
  const both = await Promise.all([1, 2].map(async () => inTransaction((tx) => held.take(tx, [seq!]))));
  assert.equal(both.flat().length, 1);
});

test('wishes come in their order, and are off when the message is kept; those for a key all together', async () => {
  const seqs = await hold(toHold('parked', 'a1'), toHold('parked', 'a2'), toHold('dead', 'b1'), toHold('dead', 'b2'));
  assert.equal(await inTransaction((tx) => held.ask(tx, [seqs[1]!, seqs[0]!], 'release')), 2);
  assert.equal(await inTransaction((tx) => held.ask(tx, [seqs[2]!, 99n], 'redrive')), 1);
  const asked = async (behind = 0n): Promise<bigint[]> =>
    (await inTransaction((tx) => held.asked(tx, 'c', behind))).map(({ seq }) => seq);
  assert.deepEqual(await asked(), seqs.slice(0, 3));
  assert.deepEqual(await asked(seqs[0]), seqs.slice(1, 3));
  assert.deepEqual(await inTransaction((tx) => held.asked(tx, 'other', 0n)), []);
  const keep = async (kind: HeldKind): Promise<void> =>
    inTransaction((tx) => held.keep(tx, 'c', [{ seq: seqs[0]!, kind, aggregateId: 'a', reason: 'still' }]));
  await keep('dead');
  assert.deepEqual(await asked(), seqs.slice(1, 3), 'a dead one says nothing about its key');
  await keep('parked');
  assert.deepEqual(await asked(), [seqs[2]]);
  const rows = await inTransaction((tx) => held.list(tx, { aggregateId: 'a' }));
  assert.deepEqual(
    rows.map(({ reason }) => reason),
    ['still', 'because'],
  );
});

test('a late one that was settled is not held again; one with its id and other content is', async () => {
  const late = toHold('late', 'a1');
  const settle = async (...contents: bigint[]) =>
    inTransaction((tx) =>
      held.settleLate(
        tx,
        'c',
        contents.map((content) => ({ id: late.id!, content })),
      ),
    );
  assert.deepEqual(await settle(late.content, late.content, 1n), ['first', 'duplicate', 'altered']);
  assert.deepEqual(await settle(1n, late.content), ['altered', 'duplicate']);
  assert.equal((await hold(late)).length, 0);
  assert.equal((await hold({ ...late, content: 1n })).length, 1);
  assert.equal((await inTransaction((tx) => held.hold(tx, 'other', [late]))).length, 1);
});

test('a message is held once, whatever the inbox still knows of it, and not again once it was run or dropped', async () => {
  for (const kind of ['parked', 'dead', 'altered'] as const) {
    const message = toHold(kind, 'a1');
    const [seq] = await hold(message);
    assert.deepEqual(await hold({ ...message, kind: 'late' }), [], 'its inbox row was forgotten');
    await inTransaction(async (tx) => held.take(tx, [seq!]));
    const identity = { id: message.id!, content: message.content };
    const settle = async () => inTransaction((tx) => held.settled(tx, 'c', [identity, identity]));
    assert.deepEqual(
      [await settle(), await settle()],
      [
        [true, false],
        [false, false],
      ],
    );
    assert.deepEqual(await hold({ ...message, kind: 'late' }, { ...message, kind: 'altered' }), []);
  }
});

test('what is dropped is gone, and is not held again; the rest stays', async () => {
  const messages = [toHold('late', 'a1'), toHold('parked', 'a2'), toHold('unreadable', 'x', { id: undefined })];
  const seqs = await hold(...messages, toHold('late', 'b1'));
  const gone = await inTransaction((tx) => held.drop(tx, [seqs[2]!, 99n, seqs[1]!, seqs[0]!]));
  assert.deepEqual(
    gone.map(({ seq, kind }) => [seq, kind]),
    [
      [seqs[0], 'late'],
      [seqs[1], 'parked'],
      [seqs[2], 'unreadable'],
    ],
  );
  assert.deepEqual(await inTransaction((tx) => held.drop(tx, seqs.slice(0, 3))), []);
  assert.deepEqual(await hold(messages[0]!, { ...messages[1]!, kind: 'late' }), []);
  assert.equal((await inTransaction((tx) => held.tally(tx))).count, 1);
});

test('one of a time to come that is dropped leaves nothing behind: in its time it is as any other', async () => {
  const future = toHold('future', 'a1');
  const seqs = await hold(future, toHold('late', 'b1'));
  await inTransaction((tx) => held.drop(tx, seqs));
  assert.equal((await pool.query('SELECT FROM twiceproof.held_settled')).rowCount, 1);
  const [seq] = await hold({ ...future, kind: 'parked' });
  await inTransaction((tx) => held.take(tx, [seq!]));
  const { id, content } = future;
  assert.deepEqual(await inTransaction((tx) => held.settled(tx, 'c', [{ id: id!, content }])), [true], 'it must run');
});

test('lists and counts', async () => {
  await hold(toHold('parked', 'a1'), toHold('parked', 'a2'), toHold('late', 'a3'), toHold('dead', 'b1'));
  await inTransaction((tx) => held.hold(tx, 'other', [toHold('dead', 'z1')]));
  const listed = async (filter: Parameters<typeof held.list>[1]) =>
    textsOf(await inTransaction((tx) => held.list(tx, filter)));
  assert.deepEqual(await listed({}), ['a1', 'a2', 'a3', 'b1', 'z1']);
  assert.deepEqual(await listed({ consumer: 'c', aggregateId: 'a', kind: 'parked' }), ['a1', 'a2']);
  assert.deepEqual(await listed({ limit: 2 }), ['a1', 'a2']);
  assert.deepEqual(await listed({ seqs: [4n, 77n] }), ['b1']);
  assert.deepEqual(await listed({ after: 1n, upTo: 3n }), ['a2', 'a3']);
  assert.deepEqual(await listed({ topic: 't', olderThanMs: 0 }), ['a1', 'a2', 'a3', 'b1', 'z1']);
  assert.deepEqual([await listed({ topic: 'x' }), await listed({ olderThanMs: 60_000 })], [[], []]);
  await inTransaction((tx) => held.ask(tx, [2n, 4n], 'redrive'));
  assert.deepEqual(
    [await listed({ isAsked: true }), await listed({ isAsked: false, limit: 1 })],
    [['a2', 'b1'], ['a1']],
  );
  const found = await inTransaction((tx) => held.find(tx, { seqs: [4n] }));
  const [{ delivery: its, content: _, ...row }] = (await inTransaction((tx) => held.list(tx, { seqs: [4n] }))) as [
    HeldRow,
  ];
  assert.deepEqual(found, [{ ...row, ...its.lane, offset: its.position!.offset }]);
  assert.deepEqual(await inTransaction((tx) => held.tally(tx, { consumer: 'c' })), { count: 4, asked: 2, last: 4n });
  assert.deepEqual(await inTransaction((tx) => held.tally(tx, { consumer: 'x' })), { count: 0, asked: 0, last: 0n });
  const groups = await inTransaction((tx) => held.groups(tx, { limit: 2 }));
  assert.deepEqual(
    groups.map(({ oldest, ...rest }) => ({ ...rest, isTime: oldest instanceof Date })),
    [
      { consumer: 'c', kind: 'parked', topic: 't', reason: 'because', count: 2, isTime: true },
      { consumer: 'c', kind: 'dead', topic: 't', reason: 'because', count: 1, isTime: true },
    ],
  );
  const counts = await inTransaction((tx) => held.counts(tx, 'c'));
  assert.deepEqual(Object.fromEntries(counts), { parked: 2, late: 1, dead: 1 });
});
