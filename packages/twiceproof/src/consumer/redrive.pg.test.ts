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
import { createInboxKeeper } from './inbox-keeper.ts';
import { createRedrive } from './redrive.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
pool.on('error', () => {});
after(async () => pool.end());
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

async function redrive(effect: Effect = write): Promise<number> {
  const each = async (tx: Tx, { payload }: { payload: Uint8Array }): Promise<void> => {
    await effect(tx, Buffer.from(payload).toString());
  };
  return createRedrive({
    pool,
    consumer: 'c',
    handler: { each },
    handlerTimeoutMs: 10_000,
    idleTimeoutMs: 5_000,
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

test('one behind another of its key does not overtake it; both in one wish go in their order', async () => {
  const [one, two] = [await hold('parked', 'a1'), await hold('parked', 'a2')];
  await ask('redrive', two);
  assert.equal(await redrive(), 0);
  assert.match((await rows())[1]!.reason, new RegExp(`TP_NOT_REDRIVEN: ${one} of its key waits before it`));
  await ask('redrive', two, one);
  assert.equal(await redrive(), 2);
  assert.deepEqual(await effects(), ['a1', 'a2']);
});

test('what the inbox has no row of is asked for there, or among the late ones that were settled', async () => {
  const early = uuidv7(Date.now() - 30 * hourMs);
  await ask('redrive', await hold('late', 'a1', early), await hold('late', 'a2', early));
  assert.equal(await redrive(), 1);
  // The id was settled with the content of the first.
  assert.deepEqual(
    [await effects(), (await rows()).map(({ reason }) => reason)],
    [['a1'], ['TwiceproofError: TP_NOT_REDRIVEN: its id was processed with other content']],
  );
  await pool.query('TRUNCATE twiceproof.held, effects');
  const settledLate = { consumer: 'c', id: uuidv7(Date.now() - 30 * hourMs), content: toHold('late', 'a1').content };
  await ask('redrive', await hold('late', 'a1', settledLate.id));
  await transaction(pool, (tx) => held.settleLate(tx, settledLate));
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

test('what cannot be read stays', async () => {
  await ask('redrive', await hold('unreadable', 'a1'));
  assert.equal(await redrive(), 0);
  assert.match((await rows())[0]!.reason, /TP_NOT_REDRIVEN: its id is missing/);
});
