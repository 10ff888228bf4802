import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { createOutbox } from '../outbox/append.ts';
import { countPending } from '../outbox/pending.ts';
import { changeShards } from '../outbox/reshard.ts';
import { parkedMessages } from '../sources/parked.ts';
import { createPollSource } from '../sources/poll.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { reshard } from './outbox-reshard.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 30 });
after(async () => pool.end());
await migrate(pool, { shards: 2 });
const keys = Array.from({ length: 12 }, (_, n) => `key-${n}`);
await pool.query('CREATE TABLE things (key text PRIMARY KEY, version int NOT NULL DEFAULT 0)');
await pool.query('INSERT INTO things SELECT unnest($1::text[])', [keys]);

const outbox = createOutbox({ topics: ['t'] });

/** Changes an aggregate as it should be done: the row lock first, then the message. */
async function change(tx: Tx, key: string): Promise<void> {
  const { rows } = await tx.query('UPDATE things SET version = version + 1 WHERE key = $1 RETURNING version', [key]);
  const payload = Buffer.from(String(rows[0]!['version']));
  await outbox.append(tx, [{ topic: 't', aggregateId: key, type: 'changed', payload }]);
}

/** Relays of two processes, until told to stop. What they publish goes to `topic`; `parks` cannot be published. */
function startRelays(topic: { key: string; version: number }[], parks = new Set<string>()) {
  const stop = new AbortController();
  const run = async (): Promise<void> => {
    const source = createPollSource({ pool, pollIntervalMs: 5 });
    while (!stop.signal.aborted) {
      const batch = await source.next({ maxMessages: 20, waitMs: 50, signal: stop.signal });
      if (!batch) continue;
      const parked: { index: number; reason: string }[] = [];
      batch.messages.forEach(({ aggregateId, payload }, index) => {
        if (parks.has(aggregateId)) parked.push({ index, reason: 'no' });
        else topic.push({ key: aggregateId, version: Number(Buffer.from(payload).toString()) });
      });
      await batch.advance({ done: batch.messages.length, parked });
    }
  };
  const running = Promise.all([run(), run()]);
  return async (): Promise<void> => {
    stop.abort();
    await running;
  };
}

async function untilPublished(): Promise<void> {
  const deadline = Date.now() + 30_000;
  while ((await countPending(pool, 1)) > 0) assert.ok(Date.now() < deadline, 'not drained');
}

async function shardsNow(): Promise<unknown> {
  const { rows } = await pool.query<{ shards: number; cursors: number[] }>(
    `SELECT shards, (SELECT array_agg(shard ORDER BY shard) FROM twiceproof.relay_cursor) AS cursors FROM twiceproof.settings`,
  );
  return rows[0];
}

test('with writers and relays at work the count changes, up and down, and every key keeps its order', async () => {
  const topic: { key: string; version: number }[] = [];
  const stopRelays = startRelays(topic);
  const writing = new AbortController();
  const writers = Array.from({ length: 6 }, async (_, w) => {
    for (let n = 0; !writing.signal.aborted; n += 1) {
      await transaction(pool, (tx) => change(tx, keys[(w * 5 + n) % keys.length]!));
    }
  });
  try {
    for (const shards of [5, 1, 3]) {
      const before = topic.length;
      assert.deepEqual(await reshard(pool, { shards, timeoutMs: 60_000 }), { outcome: 'changed', shards });
      assert.deepEqual(await shardsNow(), { shards, cursors: Array.from({ length: shards }, (_, n) => n) });
      const deadline = Date.now() + 30_000;
      while (topic.length < before + 100) {
        assert.ok(Date.now() < deadline, 'it goes on afterwards');
        await transaction(pool, (tx) => change(tx, keys[0]!));
      }
    }
  } finally {
    writing.abort();
    await Promise.all(writers);
    await untilPublished();
    await stopRelays();
  }
  const { rows } = await pool.query<{ key: string; version: number }>('SELECT key, version FROM things');
  for (const { key, version } of rows) {
    const published = topic.filter((each) => each.key === key).map((each) => each.version);
    assert.deepEqual(
      published,
      Array.from({ length: version }, (_, n) => n + 1),
      key,
    );
  }
});

test('without a relay nothing is changed, and writers go on', async () => {
  await transaction(pool, (tx) => change(tx, keys[0]!));
  assert.deepEqual(await reshard(pool, { shards: 7, timeoutMs: 300 }), { outcome: 'not drained', pending: 1 });
  assert.equal(await transaction(pool, (tx) => changeShards(tx, 7)), 'pending');
  assert.deepEqual(await shardsNow(), { shards: 3, cursors: [0, 1, 2] });
  await transaction(pool, (tx) => change(tx, keys[0]!));
  const stopRelays = startRelays([]);
  await untilPublished();
  await stopRelays();
});

test('a writer that does not end is not waited for beyond the time', async () => {
  const writer = await pool.connect();
  try {
    await writer.query('BEGIN');
    await change(writer, keys[1]!);
    assert.deepEqual(await reshard(pool, { shards: 7, timeoutMs: 700 }), { outcome: 'writers did not end' });
    await writer.query('ROLLBACK');
  } finally {
    writer.release();
  }
  assert.deepEqual(await shardsNow(), { shards: 3, cursors: [0, 1, 2] });
});

test('a transaction with an older snapshot than the change does not write under the old count: it fails', async () => {
  const old = await pool.connect();
  try {
    await old.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await old.query('SELECT 1 FROM things');
    assert.equal((await reshard(pool, { shards: 2, timeoutMs: 10_000 })).outcome, 'changed');
    await assert.rejects(change(old, keys[2]!), { code: '23502' });
    await old.query('ROLLBACK');
  } finally {
    old.release();
  }
});

test('what is parked moves along, and newer messages of its key still go behind it', async () => {
  const key = keys[3]!;
  const topic: { key: string; version: number }[] = [];
  const stopFirst = startRelays(topic, new Set([key]));
  await transaction(pool, (tx) => change(tx, key));
  await untilPublished();
  for (const shards of [9, 4]) {
    assert.equal((await reshard(pool, { shards, timeoutMs: 30_000 })).outcome, 'changed');
  }
  await stopFirst();
  const stopSecond = startRelays(topic);
  await transaction(pool, (tx) => change(tx, key));
  await untilPublished();
  await stopSecond();
  assert.deepEqual(
    topic.filter((each) => each.key === key),
    [],
  );
  assert.equal((await parkedMessages(pool, { aggregateId: key, atMost: 9 })).length, 2);
});
