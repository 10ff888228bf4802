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
    const pool = new pg.Pool({ connectionString: url, application_name: name, max: 20 });
    pool.on('error', () => {});
    return pool;
  },
  migrate,
  // Batches have up to 40 messages: lists of places are cut within a batch and between two.
  createSource: (pool, schema) => createPollSource({ pool, schema, maxListed: 30, pollIntervalMs: 5 }),
  holdsSeveral: true,
});

const worlds = [
  { sources: 1, shards: 1 },
  { sources: 1, shards: 4 },
  { sources: 3, shards: 1 },
  { sources: 3, shards: 4 },
];

for (const [n, world] of worlds.entries()) {
  const seed = Number(process.env['TWICEPROOF_SEED'] ?? n + 1);
  test(`seed ${seed}, ${world.sources} readers, ${world.shards} shards: nasty writers lose nothing, add nothing, and keep their order`, async () => {
    await tryNastily(harness, { seed, messages: 1_200, ...world });
  });
}
