import assert from 'node:assert/strict';
import pg from 'pg';
import { bodyOf, exchange, requestText, startOrders, statusOf, type Orders } from '../program-under-test.ts';
import { createJudge } from './judge.ts';
import { randomFrom } from './random.ts';
import { refusedTenant } from './request.ts';
import { sendAll } from './send.ts';
import { watchStatements } from './statements.ts';

export interface FuzzOptions {
  databaseUrl: string;
  seed: number;
  requests: number;
}

/** Sends so many requests to a program of each shape, and judges every answer, and what is stored in the end. */
export async function fuzzHttp({ databaseUrl, seed, requests }: FuzzOptions): Promise<string> {
  const judge = createJudge();
  const summary = await underWatch(databaseUrl, async (programs, pool) => {
    const origins = programs.map(({ http }) => http);
    const unanswered = await sendAll(origins, randomFrom(seed), requests, judge.hear);
    await judge.conclude(pool, unanswered);
    return `${unanswered} closed without an answer`;
  });
  const counts = [...judge.counts].toSorted(([a], [b]) => a - b).map(([status, count]) => `${count} x ${status}`);
  return `${requests} requests: ${counts.join(', ')}, ${summary}`;
}

/**
 * Gives a program of each shape to `work`, and demands that whatever is sent to them they stay alive, complain of
 * nothing, make no statement that they have not made before, and ask nothing of the database for who must be refused.
 */
export async function underWatch(
  databaseUrl: string,
  work: (programs: readonly Orders[], pool: pg.Pool) => Promise<string>,
): Promise<string> {
  const watch = await watchStatements(databaseUrl, refusedTenant);
  const programs = await Promise.all(
    ['group', 'handler'].map(async (shape) => startOrders(watch.url, [`--shape=${shape}`])),
  );
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1 });
  try {
    for (const { http, pid } of programs) await warmUp(http, `warm-up-${pid}`);
    await pool.query('TRUNCATE orders, twiceproof.outbox, twiceproof.idempotency_keys, twiceproof.answers');
    const known = new Set([...watch.texts, 'ROLLBACK']);
    const summary = await work(programs, pool);
    const unknown = [...watch.texts].filter((text) => !known.has(text));
    assert.deepEqual(unknown, [], 'no request makes a statement of its own');
    assert.deepEqual(watch.forbidden, [], 'nothing that is refused gets into a query');
    for (const program of programs) {
      assert.equal(await program.stop(), 0);
      assert.doesNotMatch(program.stderr(), /"level":"error"|Warning/);
      assert.doesNotMatch(program.stderr(), /tenant-|must-be-refused/, 'nothing of a request is written down');
    }
    return `${summary}; ${watch.bound()} statements with values`;
  } finally {
    await Promise.all(programs.map(async (program) => program.stop()));
    await pool.end();
    await watch.close();
  }
}

/** Every statement that there is, at least once. */
async function warmUp(origin: string, key: string): Promise<void> {
  const post = async (path: string, body: object) => exchange(origin, requestText(path, { key, body }));
  const order = bodyOf(await post('/orders', { account_id: 1, amount_cents: 1 }));
  const path = `/orders/${String(order['order_id'])}`;
  const statuses = [
    await post('/orders', { account_id: 1, amount_cents: 1 }),
    await post('/orders', { account_id: 1, amount_cents: 2 }),
    await post(`${path}/status`, { status: 'paid' }),
    await post(`${path}/status`, { status: 'paid' }),
    await exchange(origin, requestText(path, { method: 'GET' })),
  ].map(statusOf);
  assert.deepEqual(statuses, [201, 409, 200, 200, 200]);
}
