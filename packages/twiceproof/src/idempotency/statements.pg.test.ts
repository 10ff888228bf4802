import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { keyHash, type Intent } from './intent.ts';
import { createKeyStore } from './statements.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
await migrate(pool);
const store = createKeyStore();

function intent(key: string): Intent {
  return { principal: 'p', operation: 'o', key, requestHash: 'aa', hashVersion: 1 };
}

test('who claims the same keys in another order waits, and no two wait for each other', async () => {
  const [one, other] = [await pool.connect(), await pool.connect()];
  try {
    for (let round = 0; round < 100; round += 1) {
      const intents = Array.from({ length: 50 }, (_, n) => intent(`${round}-${n}`));
      await Promise.all([one.query('BEGIN'), other.query('BEGIN')]);
      // Without a retry: a deadlock is an error here.
      const claims = async (client: pg.PoolClient, order: Intent[]): Promise<number> => {
        const { size } = await store.claim(client, order);
        await client.query('COMMIT');
        return size;
      };
      const won = await Promise.all([claims(one, intents), claims(other, intents.toReversed())]);
      assert.equal(won[0] + won[1], intents.length);
    }
  } finally {
    one.release(true);
    other.release(true);
  }
});

test('a row that has the hash of a key and is of another is never taken for its own', async () => {
  const mine = intent('collision');
  await pool.query(
    `INSERT INTO twiceproof.idempotency_keys (key_hash, principal, operation, idem_key, request_hash, hash_version)
     VALUES ($1, 'another', 'o', 'collision', '\\xaa', 1)`,
    [keyHash(mine)],
  );
  const client = await pool.connect();
  try {
    await assert.rejects(store.read(client, [mine]), { code: 'TP_KEY_COLLISION' });
  } finally {
    client.release();
  }
});

test('no column of keys or answers wants statistics, so ANALYZE has hardly anything to read', async () => {
  const { rows } = await pool.query(
    `SELECT attrelid::regclass AS relation, attname FROM pg_attribute
     WHERE attrelid IN ('twiceproof.idempotency_keys'::regclass, 'twiceproof.answers'::regclass)
       AND attnum > 0 AND NOT attisdropped AND attstattarget IS DISTINCT FROM 0`,
  );
  assert.deepEqual(rows, []);
});
