import assert from 'node:assert/strict';
import { test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { startPostgres } from '@twiceproof/infra/postgres';
import { serverProblems } from './server.ts';

const { url } = await testDatabase();

async function problemsAt(address: string): Promise<string[]> {
  const client = new pg.Client(address);
  await client.connect();
  try {
    return await serverProblems(client);
  } finally {
    await client.end();
  }
}

test('a server that keeps its word has no problems, and one without fsync is found out', async () => {
  assert.deepEqual(await problemsAt(url), []);
  const careless = await startPostgres({ settings: { fsync: 'off', full_page_writes: 'off' } });
  try {
    const problems = await problemsAt(careless.url);
    assert.deepEqual(
      problems.map((each) => each.split(' ')[0]),
      ['fsync', 'full_page_writes'],
    );
  } finally {
    await careless.close();
  }
});
