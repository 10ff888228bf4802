import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { migrate } from '../migrations/migrate.ts';
import { createOutbox } from '../outbox/append.ts';
import { countPending } from '../outbox/pending.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { groupOperation, handlerOperation, plannedOperation, type Operation, type Outcome } from './operation.ts';
import { createPendingGuard } from './pending-guard.ts';

const { url } = await testDatabase();
const pool = new pg.Pool({ connectionString: url });
after(async () => pool.end());
await migrate(pool, { shards: 2 });
const outbox = createOutbox({ topics: ['t'] });
const guard = createPendingGuard({ pool, maxPending: 5 });

await pool.query('CREATE TABLE sent (n int)');
const message = (n: number) => ({ topic: 't', aggregateId: `a${n}`, type: 'sent', payload: Buffer.from('x') });

async function send(tx: Tx, n: number): Promise<Outcome<number>> {
  await outbox.append(tx, [message(n)]);
  return { code: 201, result: n };
}

const shapes: Record<string, Operation<number, number>> = {
  handler: handlerOperation({ pool, name: 'handler', admits: guard.admits, execute: send }),
  group: groupOperation({
    pool,
    name: 'group',
    admits: guard.admits,
    effects: async (tx, commands) => {
      const outcomes: Outcome<number>[] = [];
      for (const n of commands) outcomes.push(await send(tx, n));
      return outcomes;
    },
  }),
  planned: plannedOperation<number, number, { n: number }>({
    pool,
    name: 'planned',
    admits: guard.admits,
    outbox,
    columns: { n: 'int' },
    statement: 'INSERT INTO sent SELECT n FROM won RETURNING 1',
    plan: (n) => ({ outcome: { code: 201, result: n }, row: { n }, messages: [message(n)] }),
  }),
};

for (const [shape, operation] of Object.entries(shapes)) {
  test(`${shape}: with nothing published it goes on up to the limit, then only known keys are answered, until messages are published`, async () => {
    const ask = async (n: number): Promise<string> =>
      (await operation.run({ principal: 'p', key: `k${n}` }, n)).outcome;
    await guard.runOnce();
    for (let n = 0; n < 5; n += 1) assert.equal(await ask(n), 'answered');
    await guard.runOnce();
    assert.equal(await ask(5), 'busy');
    assert.equal(await ask(0), 'answered', 'a replay');
    await pool.query('UPDATE twiceproof.relay_cursor SET prev = pg_current_snapshot()');
    await guard.runOnce();
    assert.equal(await ask(5), 'answered');
    await pool.query('UPDATE twiceproof.relay_cursor SET prev = pg_current_snapshot()');
  });
}

test('of a window that is partly published only the rest counts, and a writer that was slow counts when it is done', async () => {
  const pending = async (): Promise<number> => countPending(pool, 1_000);
  await pool.query('UPDATE twiceproof.relay_cursor SET prev = pg_current_snapshot()');
  const slow = await pool.connect();
  await slow.query('BEGIN');
  await outbox.append(slow, [message(1)]);
  await pool.query('UPDATE twiceproof.relay_cursor SET prev = pg_current_snapshot()');
  for (let n = 0; n < 10; n += 1) await transaction(pool, (tx) => outbox.append(tx, [message(n)]));
  assert.equal(await pending(), 10);
  await slow.query('COMMIT');
  slow.release();
  assert.equal(await pending(), 11);
  const { rowCount } = await pool.query('UPDATE twiceproof.relay_cursor SET window_done = 2 WHERE shard = 0');
  assert.equal(rowCount, 1);
  assert.equal(await pending(), 9);
  assert.equal(await countPending(pool, 4), 4, 'it counts no further than it is told');
});
