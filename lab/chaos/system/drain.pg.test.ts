import assert from 'node:assert/strict';
import { test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { untilDrained } from './drain.ts';

const urls = { orders: (await testDatabase()).url, payments: (await testDatabase()).url };

async function withClient<T>(url: string, use: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

const once = { timeoutMs: 0, stalledMs: 0, isHeld: true, signal: new AbortController().signal };

test('nothing is drained while a message has no effect, a record is not read, or a transaction stands open', async () => {
  await withClient(urls.orders, async (orders) =>
    withClient(urls.payments, async (payments) => {
      await orders.query('CREATE SCHEMA IF NOT EXISTS twiceproof; CREATE TABLE twiceproof.outbox (id int)');
      await payments.query(
        'CREATE SCHEMA IF NOT EXISTS twiceproof; CREATE TABLE twiceproof.held (); CREATE TABLE effects (msg_id int)',
      );
      const nothing = { isDrained: true, written: 0, done: 0, unread: 0, open: 0 };
      assert.deepEqual(await untilDrained(urls, once), nothing);

      await orders.query('INSERT INTO twiceproof.outbox VALUES (1)');
      assert.deepEqual(await untilDrained(urls, once), { ...nothing, isDrained: false, written: 1 });
      await payments.query('INSERT INTO effects VALUES (7), (7)');
      const all = { ...nothing, written: 1, done: 1 };
      assert.deepEqual(await untilDrained(urls, once), all);

      const countUnread = async (): Promise<number> => Promise.resolve(2);
      assert.deepEqual(await untilDrained(urls, { ...once, countUnread }), { ...all, isDrained: false, unread: 2 });
      const nobodyKnows = async (): Promise<number> => Promise.reject(new Error('no brokers'));
      const { unread, isDrained } = await untilDrained(urls, { ...once, countUnread: nobodyKnows });
      assert.deepEqual([unread, isDrained], [Infinity, false]);

      await payments.query('BEGIN');
      assert.deepEqual(await untilDrained(urls, once), { ...all, isDrained: false, open: 1 });
      await payments.query('ROLLBACK');
    }),
  );
});
