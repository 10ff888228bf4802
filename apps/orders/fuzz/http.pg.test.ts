import { test } from 'node:test';
import { testDatabase } from '@twiceproof/infra/testing';
import { seedOf } from './random.ts';
import { fuzzHttp } from './run.ts';

const { url } = await testDatabase();
const seed = seedOf();

test(`seed ${seed}: 10,000 requests, most of them nasty: never a 5xx, and never a query for what is refused`, async (context) => {
  context.diagnostic(await fuzzHttp({ databaseUrl: url, seed, requests: 10_000 }));
});
