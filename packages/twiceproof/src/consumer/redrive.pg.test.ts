import assert from 'node:assert/strict';
import { after, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { contentHash, createInbox } from '../inbox/accept.ts';
import { createHeld, type HeldKind, type HeldRow, type ToHold } from '../inbox/held.ts';
import { migrate } from '../migrations/migrate.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { uuidv7 } from '../uuid.ts';
import { toRecord } from '../wire.ts';
import { isElsewhere } from './decide.ts';
import { createInboxKeeper } from './inbox-keeper.ts';
import { createRedrive, type RedriveOptions } from './redrive.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
pool.on('error', () => {});
// The library watches over a pool that its handlers must not use.
const otherPool = new pg.Pool({ connectionString: url });
after(async () => Promise.all([pool.end(), otherPool.end()]));
await migrate(pool);
const hourMs = 3_600_000;
await createInboxKeeper({ pool, ttlMs: hourMs, partitionMs: hourMs }).runOnce();
await pool.query('CREATE TABLE effects (n bigint GENERATED ALWAYS AS IDENTITY, text text)');
const held = createHeld();
const inbox = createInbox();
const signal = new AbortController().signal;

beforeEach(async () => {
  await pool.query('TRUNCATE twiceproof.held, twiceproof.held_settled, effects');
});

/** As it came: `a1` is the first of aggregate `a`. */
function toHold(kind: HeldKind, text: string, id = uuidv7()): ToHold {
  const message = { topic: 't', aggregateId: text.replace(/\d+$/, ''), type: 'said', payload: Buffer.from(text) };
  const record = toRecord({ ...message, id, createdAt: new Date() }, '/test');
  const delivery = {
    lane: { topic: 't', partition: 0 },
    key: Buffer.from(record.key),
    value: record.value,
    headers: Object.entries(record.headers ?? {})
      .filter(([name]) => kind !== 'unreadable' || name !== 'ce_id')
      .map(([name, content]) => [name, Buffer.from(content)] as const),
  };
  const { aggregateId } = message;
  return { kind, delivery, topicId: 'x', aggregateId, id, content: contentHash(message), reason: 'at first' };
}

async function hold(kind: HeldKind, text: string, id?: string): Promise<bigint> {
  return (await transaction(pool, (tx) => held.hold(tx, 'c', [toHold(kind, text, id)])))[0]!.seq;
}

const rows = async (): Promise<HeldRow[]> => transaction(pool, (tx) => held.list(tx));
const ask = async (wish: 'redrive' | 'release', ...seqs: bigint[]): Promise<number> =>
  transaction(pool, (tx) => held.ask(tx, seqs, wish));

async function effects(): Promise<string[]> {
  return (await pool.query<{ text: string }>('SELECT text FROM effects ORDER BY n')).rows.map(({ text }) => text);
}

type Effect = (tx: Tx, text: string) => Promise<unknown>;
const write: Effect = async (tx, text) => tx.query('INSERT INTO effects (text) VALUES ($1)', [text]);

async function redrive(effect: Effect = write, over: Partial<RedriveOptions> = {}): Promise<number> {
  const each = async (tx: Tx, { payload }: { payload: Uint8Array }): Promise<void> => {
    await effect(tx, Buffer.from(payload).toString());
  };
  return createRedrive({
    pool,
    consumer: 'c',
    handler: { each },
    handlerTimeoutMs: 10_000,
    idleTimeoutMs: 5_000,
    ...over,
  }).asked(signal);
}

test('only what was asked for is run, and then it is not held any more', async () => {
  const [one] = [await hold('dead', 'a1'), await hold('dead', 'a2'), await hold('parked', 'b1')];
  assert.equal(await redrive(), 0);
  await ask('redrive', one);
  assert.equal(await redrive(), 1);
  assert.deepEqual([await effects(), (await rows()).length], [['a1'], 2]);
  assert.equal(await redrive(), 0);
});

test('two at once: one effect', async () => {
  await ask('redrive', await hold('dead', 'a1'));
  let runs = 0;
  const slowly: Effect = async (tx, text) => {
    runs += 1;
    // Until the other one wants the same row.
    const waiting = "SELECT FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')";
    const deadline = performance.now() + 20_000;
    while ((await tx.query(waiting)).rowCount === 0) {
      assert.ok(performance.now() < deadline, 'nobody else wants that row');
      await delay(2);
    }
    await write(tx, text);
  };
  const settled = await Promise.all([redrive(slowly), redrive(slowly)]);
  assert.deepEqual([settled.toSorted(), runs, await effects(), await rows()], [[0, 1], 1, ['a1'], []]);
});

/** As a consumer does it that gets one more of this key: behind the others, or on its own when none is left. */
async function arrive(client: pg.PoolClient, text: string): Promise<void> {
  await client.query('BEGIN');
  const key = text.replace(/\d+$/, '');
  const isBlocked = (await held.blockedKeys(client, 'c', [key])).has(key);
  if (isBlocked) await held.hold(client, 'c', [toHold('parked', text)]);
  else await write(client, text);
  await client.query('COMMIT');
}

test('a key is released in its order until none is left, and what comes meanwhile does not overtake', async () => {
  const seqs: bigint[] = [];
  for (let n = 1; n <= 11; n += 1) seqs.push(await hold('parked', `a${n}`));
  await hold('parked', 'b1');
  await ask('release', ...seqs);
  const client = await pool.connect();
  const arriving: Promise<void>[] = [];
  await redrive(async (tx, text) => {
    await write(tx, text);
    if (text === 'a1') arriving.push(arrive(client, 'a12').then(async () => arrive(client, 'a13')));
  });
  await Promise.all(arriving);
  client.release();
  assert.deepEqual(
    await effects(),
    Array.from({ length: 13 }, (_, n) => `a${n + 1}`),
  );
  assert.deepEqual(
    (await rows()).map(({ aggregateId }) => aggregateId),
    ['b'],
  );
});

test('one whose handler fails again stays, with its new reason; the wish is off, and with it that for its key', async () => {
  const seqs = [await hold('parked', 'a1'), await hold('parked', 'a2'), await hold('parked', 'a3')];
  await ask('release', ...seqs);
  const effect: Effect = async (tx, text) => {
    await write(tx, text);
    if (text === 'a2') throw new RangeError('still not');
  };
  assert.equal(await redrive(effect), 1);
  const left = await rows();
  assert.deepEqual(
    [await effects(), left.map(({ reason }) => reason)],
    [['a1'], ['RangeError: still not', 'at first']],
  );
  assert.deepEqual(
    left.map(({ asked }) => asked),
    [undefined, undefined],
  );
  assert.equal(await redrive(effect), 0);
});

test('a failure that its handler swallows keeps it too', async () => {
  await ask('redrive', await hold('dead', 'a1'));
  const swallowing: Effect = async (tx) => tx.query('SELECT 1 / 0').catch(() => {});
  assert.equal(await redrive(swallowing), 0);
  assert.match((await rows())[0]!.reason, /TP_COMMIT_WAS_ROLLBACK/);
});

test('a connection that is lost is no verdict: the wish stands', async () => {
  await ask('redrive', await hold('dead', 'a1'));
  const cut: Effect = async (tx, text) => {
    await write(tx, text);
    await tx.query('SELECT pg_terminate_backend(pg_backend_pid())');
  };
  await assert.rejects(redrive(cut), { code: '57P01' });
  const [row] = await rows();
  assert.deepEqual([row!.asked, row!.reason, await effects()], ['redrive', 'at first', []]);
  assert.equal(await redrive(), 1);
});

test('one that stands still in the midst of it loses its messages, and the wish stands', async () => {
  const seq = await hold('dead', 'a1');
  await ask('redrive', seq);
  const standing: Effect = async (tx, text) => {
    await write(tx, text);
    // Whoever gets the row before we go on gets it because the server has ended our transaction.
    await transaction(
      otherPool,
      async (other) => other.query('SELECT FROM twiceproof.held WHERE seq = $1 FOR UPDATE', [String(seq)]),
      {
        localSettings: { lock_timeout: '20000' },
      },
    );
  };
  await assert.rejects(redrive(standing, { idleTimeoutMs: 50 }), (error) => isElsewhere(error));
  const [row] = await rows();
  assert.deepEqual([row!.asked, row!.reason, await effects()], ['redrive', 'at first', []]);
  assert.equal(await redrive(), 1);
});

const texts = (key: string, count: number): string[] => Array.from({ length: count }, (_, n) => `${key}${n + 1}`);

test('many wishes are done in one call, and in few transactions; the one that fails is found among them', async () => {
  const all = texts('a', 250);
  const seqs = (
    await transaction(pool, (tx) =>
      held.hold(
        tx,
        'c',
        all.map((text) => toHold('dead', text)),
      ),
    )
  ).map(({ seq }) => seq);
  await ask('redrive', ...seqs);
  let calls = 0;
  const effect: Effect = async (tx, text) => {
    calls += 1;
    await write(tx, text);
    if (text === 'a130') throw new RangeError('not this one');
  };
  assert.equal(await redrive(effect), 249);
  assert.deepEqual(
    await effects(),
    all.filter((text) => text !== 'a130'),
  );
  assert.ok(calls < 500, `${calls} calls of the handler`);
  assert.deepEqual(
    (await rows()).map(({ reason, asked }) => [reason, asked]),
    [['RangeError: not this one', undefined]],
  );
  const { rows: xids } = await pool.query('SELECT DISTINCT xmin::text FROM effects');
  assert.ok(xids.length < 20, `${xids.length} transactions`);
});

test('many keys are released together, each in its order; one that fails stops its own', async () => {
  const interleaved = texts('a', 60).flatMap((_, n) => [`a${n + 1}`, `b${n + 1}`, `c${n + 1}`]);
  const messages = interleaved.map((text) => toHold('parked', text));
  const held1 = await transaction(pool, (tx) => held.hold(tx, 'c', messages));
  await ask('release', ...held1.map(({ seq }) => seq));
  const effect: Effect = async (tx, text) => {
    await write(tx, text);
    if (text === 'b40') throw new RangeError('no');
  };
  assert.equal(await redrive(effect), 60 + 39 + 60);
  const ran = await effects();
  for (const [key, count] of [
    ['a', 60],
    ['b', 39],
    ['c', 60],
  ] as const) {
    assert.deepEqual(
      ran.filter((text) => text.startsWith(key)),
      texts(key, count),
    );
  }
  const left = await rows();
  assert.deepEqual(
    left.map(({ reason, asked }) => [reason, asked]),
    [['RangeError: no', undefined], ...Array.from({ length: 20 }, () => ['at first', undefined])],
  );
});

const refusedElsewhere = (): Error => Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });

/** What the server says when it has no room for us: that is no fault of a message. */
const noRoom = async (tx: Tx): Promise<unknown> =>
  tx.query("DO $$ BEGIN RAISE EXCEPTION 'too many' USING ERRCODE = '53300'; END $$");

async function askForMany(count: number): Promise<void> {
  const messages = texts('a', count).map((text) => toHold('dead', text));
  const all = await transaction(pool, (tx) => held.hold(tx, 'c', messages));
  await ask('redrive', ...all.map(({ seq }) => seq));
}

test('one that cannot be run now stays asked for, and the others do not wait for it', async () => {
  await askForMany(130);
  const effect: Effect = async (tx, text) => {
    await write(tx, text);
    if (text === 'a20') await noRoom(tx);
  };
  await assert.rejects(redrive(effect), { code: '53300' });
  assert.equal((await effects()).length, 129);
  assert.deepEqual(
    (await rows()).map(({ asked, reason }) => [asked, reason]),
    [['redrive', 'at first']],
  );
});

test('when none of some can be run now, the rest waits for the next look', async () => {
  await askForMany(350);
  const tried = new Set<string>();
  const effect: Effect = async (tx, text) => {
    tried.add(text);
    await noRoom(tx);
  };
  await assert.rejects(redrive(effect), { code: '53300' });
  assert.equal(tried.size, 100);
  assert.equal((await transaction(pool, (tx) => held.tally(tx, { isAsked: true }))).count, 350);
});

test("a service of the handler's own that is away is a reason to keep its message, and the wish is done with", async () => {
  await askForMany(130);
  const effect: Effect = async (tx, text) => {
    await write(tx, text);
    if (text === 'a20') throw refusedElsewhere();
    if (text === 'a21') throw new TypeError('fetch failed', { cause: refusedElsewhere() });
  };
  assert.equal(await redrive(effect), 128);
  assert.deepEqual(
    (await rows()).map(({ asked, reason }) => [asked, reason]),
    [
      [undefined, 'Error: connect ECONNREFUSED'],
      [undefined, 'TypeError: fetch failed'],
    ],
  );
});

test('a database that cannot be reached any more is not asked for each of them', async () => {
  await askForMany(100);
  let connects = 0;
  const going = {
    connect: async () => {
      connects += 1;
      if (connects > 2) throw refusedElsewhere();
      return pool.connect();
    },
  };
  const cut: Effect = async (tx) => tx.query('SELECT pg_terminate_backend(pg_backend_pid())');
  await assert.rejects(redrive(cut, { pool: going }), { code: 'ECONNREFUSED' });
  assert.equal(connects, 3);
  assert.equal((await transaction(pool, (tx) => held.tally(tx, { isAsked: true }))).count, 100);
});

test('what must not be run is kept, and the others of its batch are run', async () => {
  const wishes = [
    await hold('dead', 'a1'),
    await hold('unreadable', 'b1'),
    await hold('future', 'c1', uuidv7(Date.now() + 900 * hourMs)),
    await hold('dead', 'd1'),
  ];
  await ask('redrive', ...wishes);
  assert.equal(await redrive(), 2);
  assert.deepEqual(await effects(), ['a1', 'd1']);
  const left = await rows();
  assert.match(left[0]!.reason, /TP_NOT_REDRIVEN: its id is missing/);
  assert.match(left[1]!.reason, /TP_NOT_REDRIVEN: its time has not come/);
});

test('a key that is released stops at one that must not be run, and what is before it is run', async () => {
  const unreadable: ToHold = { ...toHold('unreadable', 'a2'), kind: 'parked' };
  const messages = [toHold('parked', 'a1'), unreadable, toHold('parked', 'a3')];
  const all = await transaction(pool, (tx) => held.hold(tx, 'c', messages));
  await ask('release', ...all.map(({ seq }) => seq));
  assert.equal(await redrive(), 1);
  const left = await rows();
  assert.deepEqual([await effects(), left.map(({ asked }) => asked)], [['a1'], [undefined, undefined]]);
  assert.match(left[0]!.reason, /TP_NOT_REDRIVEN: its id is missing/);
  assert.equal(left[1]!.reason, 'at first');
});

test('several that do it at the same time give one effect each, in the order of each key', async () => {
  const interleaved = texts('a', 150).flatMap((_, n) => [`a${n + 1}`, `b${n + 1}`]);
  const messages = interleaved.map((text) => toHold('late', text, uuidv7(Date.now() - 30 * hourMs)));
  const rowsHeld = await transaction(pool, (tx) => held.hold(tx, 'c', messages));
  await ask('redrive', ...rowsHeld.map(({ seq }) => seq));
  const settled = await Promise.all([redrive(), redrive(), redrive()]);
  assert.equal(
    settled.reduce((sum, count) => sum + count),
    300,
  );
  const ran = await effects();
  for (const key of ['a', 'b']) {
    assert.deepEqual(
      ran.filter((text) => text.startsWith(key)),
      texts(key, 150),
    );
  }
});

test('one behind another of its key does not overtake it; both in one wish go in their order', async () => {
  const [one, two] = [await hold('parked', 'a1'), await hold('parked', 'a2')];
  await ask('redrive', two);
  assert.equal(await redrive(), 0);
  assert.match((await rows())[1]!.reason, new RegExp(`TP_NOT_REDRIVEN: ${one} of its key waits before it`));
  await ask('redrive', two, one);
  assert.equal(await redrive(), 2);
  assert.deepEqual(await effects(), ['a1', 'a2']);
});

const another = 'its id was processed, or dropped, with other content; it is an altered one now';

test('one whose id has run, or was dropped, with other content becomes altered, and the next wish runs it as its own', async () => {
  const early = uuidv7(Date.now() - 30 * hourMs);
  const [good, bad] = [await hold('late', 'a1', early), await hold('late', 'a2', early)];
  await transaction(pool, (tx) => held.drop(tx, [bad]));
  const came = uuidv7();
  await transaction(pool, (tx) => inbox.accept(tx, { consumer: 'c', id: came, content: toHold('dead', 'b2').content }));
  const seqs = [good, await hold('future', 'b1', came)];
  await ask('redrive', ...seqs);
  assert.deepEqual([await redrive(), await effects()], [0, []]);
  for (const { kind, reason, asked } of await rows()) {
    assert.deepEqual([kind, reason, asked], ['altered', `TwiceproofError: TP_NOT_REDRIVEN: ${another}`, undefined]);
  }
  await ask('redrive', ...seqs);
  assert.deepEqual([await redrive(), await effects(), await rows()], [2, ['a1', 'b1'], []]);
});

test('when one of a time to come fails in its time, another of its id, with other content, is still held', async () => {
  const id = uuidv7();
  for (const text of ['a1', 'a2']) await hold('future', text, id);
  await hold('parked', 'a1', id);
  assert.deepEqual(
    (await rows()).map(({ kind, content }) => [kind, content]),
    [
      ['future', toHold('future', 'a2').content],
      ['parked', toHold('parked', 'a1').content],
    ],
  );
});

test('what the inbox has no row of is asked for there, or among the late ones that were settled', async () => {
  const early = uuidv7(Date.now() - 30 * hourMs);
  await ask('redrive', await hold('late', 'a1', early), await hold('late', 'a2', early));
  assert.equal(await redrive(), 1);
  // The id was settled with the content of the first.
  assert.deepEqual(
    [await effects(), (await rows()).map(({ reason }) => reason)],
    [['a1'], [`TwiceproofError: TP_NOT_REDRIVEN: ${another}`]],
  );
  await pool.query('TRUNCATE twiceproof.held, effects');
  const settledLate = { id: uuidv7(Date.now() - 30 * hourMs), content: toHold('late', 'a1').content };
  await ask('redrive', await hold('late', 'a1', settledLate.id));
  await transaction(pool, (tx) => held.settleLate(tx, 'c', [settledLate]));
  assert.deepEqual([await redrive(), await effects(), await rows()], [1, [], []], 'it has run, and does not again');

  await ask('redrive', await hold('future', 'b1', uuidv7(Date.now() + 900 * hourMs)));
  assert.equal(await redrive(), 0);
  assert.match((await rows())[0]!.reason, /its time has not come/);
  await pool.query('TRUNCATE twiceproof.held');
  const [came, unseen] = [uuidv7(), uuidv7()];
  const content = contentHash({ type: 'said', aggregateId: 'c', payload: Buffer.from('c1') });
  await transaction(pool, (tx) => inbox.accept(tx, { consumer: 'c', id: came, content }));
  await ask('redrive', await hold('future', 'c1', came), await hold('future', 'd1', unseen));
  assert.deepEqual([await redrive(), await effects(), await rows()], [2, ['d1'], []]);
  assert.equal(await transaction(pool, (tx) => inbox.accept(tx, { consumer: 'c', id: unseen })), 'altered');
});

/** As it is held: nothing is known of it but its bytes. An update can read them now. */
async function holdUnreadable(text: string, id: string): Promise<bigint> {
  const { delivery, content } = toHold('dead', text, id);
  const row = { kind: 'unreadable', delivery, topicId: 'x', content: content + 1n, reason: 'at first' } as const;
  return (await transaction(pool, (tx) => held.hold(tx, 'c', [row])))[0]!.seq;
}

const forgotten = /TP_NOT_REDRIVEN: the inbox has forgotten whether it has run; it is a late one now/;

for (const [kind, holdIt] of [
  ['unreadable', holdUnreadable],
  ['future', async (text: string, id: string) => hold('future', text, id)],
] as const) {
  test(`one that was ${kind} and may have run since is not run on a guess: it becomes late, and the next wish is for a late one`, async () => {
    const early = uuidv7(Date.now() - 30 * hourMs);
    const seq = await holdIt('a1', early);
    await ask('redrive', seq, await hold('dead', 'b1'));
    assert.equal(await redrive(), 1);
    assert.deepEqual(await effects(), ['b1']);
    const [row, ...others] = await rows();
    assert.deepEqual(others, []);
    const { content } = toHold('late', 'a1');
    assert.deepEqual(
      [row!.seq, row!.kind, row!.id, row!.aggregateId, row!.content, row!.asked],
      [seq, 'late', early, 'a', content, undefined],
    );
    assert.match(row!.reason, forgotten);
    await ask('redrive', seq);
    assert.deepEqual([await redrive(), await effects(), await rows()], [1, ['b1', 'a1'], []]);
    assert.deepEqual(await transaction(pool, (tx) => held.hold(tx, 'c', [toHold('late', 'a1', early)])), []);
  });
}

test('of copies that could not be read and may have run since, one becomes late, and the others go', async () => {
  const early = uuidv7(Date.now() - 30 * hourMs);
  const seqs = [await holdUnreadable('a1', early), await holdUnreadable('a1', early)];
  await ask('redrive', ...seqs);
  assert.equal(await redrive(), 0);
  const left = await rows();
  assert.deepEqual(
    left.map(({ seq, kind }) => [seq, kind]),
    [[seqs[0], 'late']],
  );
  await ask('redrive', seqs[0]!);
  assert.deepEqual([await redrive(), await effects(), await rows()], [1, ['a1'], []]);
});

test('what could not be read is run when it can be, if the inbox has not forgotten', async () => {
  const [came, unseen] = [uuidv7(), uuidv7()];
  const { content } = toHold('late', 'a1');
  await transaction(pool, (tx) => inbox.accept(tx, { consumer: 'c', id: came, content }));
  await ask('redrive', await holdUnreadable('a1', came), await holdUnreadable('b1', unseen));
  assert.deepEqual([await redrive(), await effects(), await rows()], [2, ['b1'], []]);
});

test('what cannot be read stays', async () => {
  await ask('redrive', await hold('unreadable', 'a1'));
  assert.equal(await redrive(), 0);
  assert.match((await rows())[0]!.reason, /TP_NOT_REDRIVEN: its id is missing/);
});
