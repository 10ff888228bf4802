import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { after, test } from 'node:test';
import { testDatabase } from '@twiceproof/infra/testing';
import pg from 'pg';
import { copyIn, copyOut } from './copy.ts';

const { url } = await testDatabase();
const [one, other] = [new pg.Client(url), new pg.Client(url)];
await Promise.all([one.connect(), other.connect()]);
after(async () => Promise.all([one.end(), other.end()]));

test('rows go from one session to another, also those that are larger than a chunk', async () => {
  await one.query(`CREATE TEMP TABLE here AS SELECT n, repeat('ä\\t', n) AS text FROM generate_series(1, 3000) AS n`);
  await one.query(`INSERT INTO here VALUES (0, repeat('x', 200000)), (0, NULL)`);
  await other.query('CREATE TEMP TABLE there (n int, text text)');
  assert.equal(await copyIn(other, 'COPY there FROM STDIN', copyOut(one, 'COPY here TO STDOUT')), 3_002);
  const digest = (table: string): string =>
    `SELECT count(*)::int AS rows, sum(n)::int AS n, sum(length(text))::int AS letters, md5(string_agg(text, ' ' ORDER BY n)) FROM ${table}`;
  assert.deepEqual((await other.query(digest('there'))).rows, (await one.query(digest('here'))).rows);
});

test('a server that waits, and a reader that is slow', async () => {
  const out = copyOut(one, `COPY (SELECT repeat('x', 1000) FROM generate_series(1, 20000)) TO STDOUT`);
  let bytes = 0;
  for await (const chunk of out) {
    bytes += (chunk as Buffer).length;
    assert.ok(out.readableLength < 2 * 1024 * 1024, `${out.readableLength} bytes are kept for a slow reader`);
    await new Promise(setImmediate);
  }
  assert.equal(bytes, 20_000 * 1_001);
});

test('a line that the server refuses, a source that fails, a statement that is wrong: told, and the session lives on', async () => {
  await one.query('CREATE TEMP TABLE numbers (n int)');
  await assert.rejects(
    copyIn(one, 'COPY numbers FROM STDIN', Readable.from([Buffer.from('1\nx\n')])),
    /invalid input syntax/,
  );
  const failing = async function* (): AsyncGenerator<Buffer> {
    yield Buffer.from('1\n');
    throw new Error('no more');
  };
  await assert.rejects(copyIn(one, 'COPY numbers FROM STDIN', failing()), /^Error: no more$/);
  await assert.rejects(copyIn(one, 'COPY nowhere FROM STDIN', Readable.from([])), /"nowhere" does not exist/);
  await assert.rejects(async () => {
    for await (const _ of copyOut(one, 'COPY (SELECT 1 / n FROM (VALUES (1), (0)) AS v (n)) TO STDOUT'));
  }, /division by zero/);
  assert.equal(
    await copyIn(one, 'COPY numbers FROM STDIN', Readable.from([Buffer.from('1\n2'), Buffer.from('3\n')])),
    2,
  );
  assert.deepEqual((await one.query('SELECT sum(n)::int AS sum FROM numbers')).rows, [{ sum: 24 }]);
});
