import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import fc from 'fast-check';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import type { Message } from '../message.ts';
import { migrate } from '../migrations/migrate.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { timeOfUuidv7 } from '../uuid.ts';
import { createOutbox } from './append.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
await migrate(pool, { shards: 4 });
await pool.query('CREATE TABLE orders (id text PRIMARY KEY, version int NOT NULL DEFAULT 0)');

const outbox = createOutbox({ topics: ['order.events'] });

function message(aggregateId: string, text = 'x'): Message {
  return { topic: 'order.events', aggregateId, type: 'order.created', payload: Buffer.from(text) };
}

interface Row {
  id: string;
  shard: number;
  msg_id: string;
  payload: Buffer;
  headers: unknown;
}

async function rowsOf(aggregateId: string): Promise<Row[]> {
  const text = 'SELECT id, shard, msg_id, payload, headers FROM twiceproof.outbox WHERE aggregate_id = $1 ORDER BY id';
  return (await pool.query<Row>(text, [aggregateId])).rows;
}

test('messages are there when the transaction is committed, in their order, and not when it is rolled back', async () => {
  const ids = await transaction(pool, (tx) => outbox.append(tx, [message('a', '1'), message('b'), message('a', '2')]));
  const rows = await rowsOf('a');
  assert.deepEqual(
    rows.map(({ payload }) => payload.toString()),
    ['1', '2'],
  );
  assert.deepEqual(
    rows.map(({ msg_id }) => msg_id),
    [ids[0], ids[2]],
  );
  assert.ok(
    ids.every((id) => Math.abs(timeOfUuidv7(id)! - Date.now()) < 60_000),
    'UUIDv7 of this minute',
  );
  await assert.rejects(
    transaction(pool, async (tx) => {
      await outbox.append(tx, [message('rolled-back')]);
      throw new Error('no');
    }),
  );
  assert.deepEqual(await rowsOf('rolled-back'), []);
});

test('COMMIT done, its answer lost, and no claim to tell: the message is there once, under the id that was answered', async () => {
  let isFirst = true;
  const lossy: Pool = {
    async connect() {
      const client = await pool.connect();
      const isLossy = isFirst;
      isFirst = false;
      return {
        query: async (text: string, values?: unknown[]) => {
          const result = await client.query<Record<string, unknown>>(text, values);
          if (isLossy && text === 'COMMIT') throw new Error('Connection terminated unexpectedly');
          return result;
        },
        on: (event, listener) => client.on(event, listener),
        off: (event, listener) => client.off(event, listener),
        release: (destroy?: boolean) => client.release(destroy),
      };
    },
  };
  const [id] = await transaction(lossy, (tx) => outbox.append(tx, [message('answer-lost')]));
  assert.deepEqual(
    (await rowsOf('answer-lost')).map(({ msg_id }) => msg_id),
    [id],
  );
});

test('a pool, a client without a transaction and any other handle without one are refused, and nothing is written', async () => {
  const refused = { code: 'TP_NOT_IN_TRANSACTION' };
  await assert.rejects(outbox.append(pool, [message('outside')]), refused);
  const early = new pg.Client({ connectionString: url });
  const connecting = early.connect();
  await assert.rejects(outbox.append(early, [message('outside')]), refused);
  await connecting;
  await early.end();
  const client = await pool.connect();
  try {
    await assert.rejects(outbox.append(client, [message('outside')]), refused);
    const foreign: Tx = { query: async (text, values) => client.query(text, values) };
    await assert.rejects(outbox.append(foreign, [message('outside')]), refused);
    await client.query('BEGIN');
    await outbox.append(client, [message('inside')]);
    await outbox.append(foreign, [message('inside')]);
    await client.query('COMMIT');
  } finally {
    client.release();
  }
  const kept = await transaction(pool, async (tx) => tx);
  await assert.rejects(outbox.append(kept, [message('outside')]), refused, 'a handle that is used after its end');
  assert.deepEqual(await rowsOf('outside'), []);
  assert.equal((await rowsOf('inside')).length, 2);
});

test('payload and headers come back as they were', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.uint8Array({ maxLength: 200 }),
      fc.dictionary(
        fc.stringMatching(/^[a-z]{1,9}$/),
        fc.string({ unit: 'grapheme' }).filter((text) => !text.includes('\0')),
        { maxKeys: 4 },
      ),
      async (payload, headers) => {
        const [id] = await transaction(pool, (tx) => outbox.append(tx, [{ ...message('bytes'), payload, headers }]));
        const { rows } = await pool.query<Row>('SELECT payload, headers FROM twiceproof.outbox WHERE msg_id = $1', [
          id,
        ]);
        assert.deepEqual(new Uint8Array(rows[0]!.payload), new Uint8Array(payload));
        assert.deepEqual({ ...(rows[0]!.headers as object) }, { ...headers });
      },
    ),
    { numRuns: 60 },
  );
});

test('an aggregate has one shard, and many aggregates use all of them', async () => {
  const names = Array.from({ length: 200 }, (_, n) => `aggregate-${n}`);
  for (let times = 0; times < 2; times += 1) {
    await transaction(pool, (tx) =>
      outbox.append(
        tx,
        names.map((name) => message(name)),
      ),
    );
  }
  const { rows } = await pool.query<{ shards: number; most: number }>(
    `SELECT count(DISTINCT shard)::int AS shards, (SELECT max(n)::int FROM (SELECT count(DISTINCT shard) AS n FROM twiceproof.outbox GROUP BY aggregate_id) x) AS most
       FROM twiceproof.outbox WHERE aggregate_id LIKE 'aggregate-%'`,
  );
  assert.deepEqual(rows, [{ shards: 4, most: 1 }]);
});

test('what cannot be published is refused here, before anything is sent to the database', async () => {
  const wrong: [Partial<Message>, string][] = [
    [{ topic: 'other' }, 'TP_TOPIC_NOT_CONFIGURED'],
    [{ aggregateId: '' }, 'TP_MESSAGE_INVALID'],
    [{ aggregateId: 'a\0b' }, 'TP_MESSAGE_INVALID'],
    [{ aggregateId: '\ud800' }, 'TP_MESSAGE_INVALID'],
    [{ aggregateId: 'x'.repeat(256) }, 'TP_MESSAGE_INVALID'],
    [{ type: '' }, 'TP_MESSAGE_INVALID'],
    [{ payload: 'text' as unknown as Uint8Array }, 'TP_MESSAGE_INVALID'],
    [{ payload: Buffer.alloc(1_000_001) }, 'TP_MESSAGE_TOO_LARGE'],
    [{ headers: { ce_id: 'forged' } }, 'TP_MESSAGE_INVALID'],
    [{ headers: { a: 'x\0' } }, 'TP_MESSAGE_INVALID'],
    [{ headers: Object.fromEntries(Array.from({ length: 33 }, (_, n) => [`h${n}`, ''])) }, 'TP_MESSAGE_INVALID'],
  ];
  for (const [part, code] of wrong) {
    const queries: string[] = [];
    const tx: Tx = {
      query: async (text) => {
        queries.push(text);
        return { rows: [], rowCount: 0 };
      },
    };
    await assert.rejects(
      outbox.append(tx, [{ ...message('wrong'), ...part }]),
      { code },
      JSON.stringify(part).slice(0, 80),
    );
    assert.deepEqual(queries, []);
  }
});

/** Two transactions on one order; the second to lock the row writes the higher version. */
async function inThisOrder(steps: { append: 'before-lock' | 'after-lock' }): Promise<string[]> {
  const order = `order-${steps.append}`;
  await pool.query('INSERT INTO orders VALUES ($1)', [order]);
  const [first, second] = [await pool.connect(), await pool.connect()];
  const change = async (client: pg.PoolClient): Promise<string> => {
    const { rows } = await client.query<{ version: number }>(
      'UPDATE orders SET version = version + 1 WHERE id = $1 RETURNING version',
      [order],
    );
    return `version ${rows[0]?.version}`;
  };
  const append = async (client: pg.PoolClient, text: string): Promise<unknown> =>
    outbox.append(client, [message(order, text)]);
  try {
    await first.query('BEGIN');
    await second.query('BEGIN');
    if (steps.append === 'before-lock') await append(first, 'version 2, drawn early');
    await append(second, await change(second));
    const waiting = change(first);
    await second.query('COMMIT');
    const version = await waiting;
    if (steps.append === 'after-lock') await append(first, version);
    await first.query('COMMIT');
  } finally {
    first.release();
    second.release();
  }
  return (await rowsOf(order)).map(({ payload }) => payload.toString());
}

test('order within a key: right when the row is locked before the append, reversed when it is not', async () => {
  assert.deepEqual(await inThisOrder({ append: 'after-lock' }), ['version 1', 'version 2']);
  assert.deepEqual(await inThisOrder({ append: 'before-lock' }), ['version 2, drawn early', 'version 1']);
});

test('whoever appends waits for the disk at COMMIT, whatever is usual here; and for more where that is usual', async () => {
  for (const [usual, expected] of [
    ['off', 'on'],
    ['local', 'on'],
    ['remote_apply', 'remote_apply'],
  ] as const) {
    const client = await pool.connect();
    try {
      await client.query(`BEGIN; SET LOCAL synchronous_commit = ${usual}`);
      await outbox.append(client, [message('durable')]);
      const { rows } = await client.query('SHOW synchronous_commit');
      assert.deepEqual(rows, [{ synchronous_commit: expected }]);
      await client.query('ROLLBACK');
    } finally {
      client.release();
    }
  }
});

test('outbox_pending counts what is committed, for each shard', async () => {
  const pending = async (): Promise<number> =>
    Number((await pool.query<{ n: string }>('SELECT sum(pending) AS n FROM twiceproof.outbox_pending')).rows[0]?.n);
  const before = await pending();
  await transaction(pool, async (tx) => {
    await outbox.append(tx, [message('p1'), message('p2')]);
    assert.equal(await pending(), before, 'what is not committed is not pending');
  });
  assert.equal(await pending(), before + 2);
  await pool.query('UPDATE twiceproof.relay_cursor SET prev = pg_current_snapshot()');
  assert.equal(await pending(), 0);
});

test('a limit of names that could not be parked is refused', () => {
  assert.throws(() => createOutbox({ topics: ['t'], limits: { nameBytes: 2_001 } }), { code: 'TP_OPTION' });
});
