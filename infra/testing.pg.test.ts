import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { test, type TestContext } from 'node:test';
import pg from 'pg';
import { databaseLeaks, handleLeaks } from './leaks.ts';
import { testDatabase, type Template } from './testing.ts';

let migrations = 0;
const template: Template = {
  name: 'infra_testing',
  migrate: async (client) => {
    migrations += 1;
    await client.query('CREATE TABLE migrated (n int); INSERT INTO migrated VALUES (1)');
  },
};
const first = await testDatabase(template);
const second = await testDatabase(template);

async function connect(t: TestContext, url: string): Promise<pg.Client> {
  const client = new pg.Client(url);
  await client.connect();
  t.after(async () => client.end());
  return client;
}

test('each database is a clone of the template, which is migrated once, and stands alone', async (t) => {
  const one = await connect(t, first.url);
  const two = await connect(t, second.url);
  assert.ok(migrations <= 1, 'another file may have done it before');
  await one.query('INSERT INTO migrated VALUES (2)');
  assert.deepEqual((await one.query('SELECT n FROM migrated ORDER BY n')).rows, [{ n: 1 }, { n: 2 }]);
  assert.deepEqual((await two.query('SELECT n FROM migrated')).rows, [{ n: 1 }]);
});

test('the leak check sees a transaction left open, and a replication slot', async (t) => {
  const client = await connect(t, first.url);
  const { pathname } = new URL(first.url);
  const leaks = databaseLeaks(await connect(t, second.url), pathname.slice(1));
  assert.deepEqual(await leaks.find(), []);

  await client.query('BEGIN');
  await client.query('SELECT 42');
  assert.match((await leaks.find()).join(), /^backend \d+ is idle in transaction after: SELECT 42$/);
  await client.query('ROLLBACK');

  const slot = `leak_${process.pid}`;
  await client.query(`SELECT pg_create_logical_replication_slot('${slot}', 'pgoutput')`);
  assert.deepEqual(await leaks.find(), [`replication slot ${slot}`]);
  await client.query(`SELECT pg_drop_replication_slot('${slot}')`);
  assert.deepEqual(await leaks.find(), []);
});

test('the leak check sees an open server, and not what was open before', async () => {
  const before = createServer().listen(0, '127.0.0.1');
  await once(before, 'listening');
  const leaks = handleLeaks();
  await leaks.begin?.();
  assert.deepEqual(await leaks.find(), []);
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  assert.match((await leaks.find()).join(), /^1 open handles \(.*TCPServerWrap/);
  for (const each of [server, before]) each.close();
});
