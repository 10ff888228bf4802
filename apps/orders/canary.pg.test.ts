import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { watchTenants } from './canary.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url, max: 1 });
after(async () => pool.end());

for (const shape of ['group', 'handler']) {
  test(`${shape}: two tenants with 1,000 equal keys never see a byte of each other`, async () => {
    await watchTenants(url, pool, shape, 1_000);
  });
}
