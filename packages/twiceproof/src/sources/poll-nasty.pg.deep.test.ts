import { test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { tryNastily } from '../conformance/source-nasty.ts';
import { postgresHarness } from '../conformance/source-postgres.ts';
import { migrate } from '../migrations/migrate.ts';
import { createPollSource } from './poll.ts';

const { url } = await testDatabase();

const harness = postgresHarness({
  openPool(name) {
    const pool = new pg.Pool({ connectionString: url, application_name: name, max: 30 });
    pool.on('error', () => {});
    return pool;
  },
  migrate,
  createSource: (pool, schema) => createPollSource({ pool, schema, maxListed: 30, pollIntervalMs: 5 }),
  holdsSeveral: true,
});

const givenSeed = process.env['TWICEPROOF_SEED'];
const seeds = givenSeed ? [Number(givenSeed)] : Array.from({ length: 10 }, (_, n) => 101 + n);

// 10 seeds, 4 worlds each, 5,200 messages at least in each world: 208,000.
for (const seed of seeds) {
  for (const sources of [1, 3]) {
    for (const shards of [1, 4]) {
      test(`seed ${seed}, ${sources} readers, ${shards} shards: nasty writers lose nothing, add nothing, and keep their order`, async () => {
        await tryNastily(harness, { seed, messages: 5_200, sources, shards, writers: 24, aggregates: 150 });
      });
    }
  }
}

test('a transaction that stays open for 20 s holds up nobody', async () => {
  const options = { seed: 201, messages: 30_000, sources: 3, shards: 4, writers: 24, aggregates: 150 };
  await tryNastily(harness, { ...options, openForMs: 20_000 });
});
