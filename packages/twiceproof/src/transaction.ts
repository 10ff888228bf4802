import { setTimeout as delay } from 'node:timers/promises';
import { connectQuietly, durableCommit, isPassing, isServerError, type Pool, type PoolClient } from './connection.ts';
import { TwiceproofError } from './errors.ts';
import { point } from './points.ts';
import type { KnowsItsState, Tx } from './tx.ts';

export type { Pool, PoolClient } from './connection.ts';

export interface TransactionOptions {
  /** Defaults to READ COMMITTED. */
  isolation?: 'READ COMMITTED' | 'REPEATABLE READ' | 'SERIALIZABLE';
  /** How often the whole is run again after a serialization failure or a deadlock. Defaults to 5. */
  retries?: number;
  /** Server settings for this transaction only (SET LOCAL), by name. */
  localSettings?: Readonly<Record<string, string>>;
  /** How long to go on asking what became of a COMMIT whose answer was lost. Defaults to 10,000. */
  outcomeWithinMs?: number;
}

const defaults = { isolation: 'READ COMMITTED', retries: 5, localSettings: {}, outcomeWithinMs: 10_000 } as const;
const firstPauseMs = 10;

/**
 * Runs `work` in a transaction and answers what it answers, once that is committed.
 *
 * - A COMMIT that was really a ROLLBACK is an error. (The server answers so when a statement had failed
 *   and the failure was swallowed, and node-postgres resolves it.)
 * - Serialization failures and deadlocks run the whole again, decisions included. Ids that must not change
 *   between attempts are made outside.
 * - When the connection is lost at COMMIT, the server is asked what became of the transaction. `work` runs
 *   again only if it is known to have been rolled back; if nobody can tell, `TP_COMMIT_UNKNOWN` is thrown.
 * - A connection whose state is not known is closed, not given back.
 */
export async function transaction<T>(
  pool: Pool,
  work: (tx: Tx) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  const settings = { ...defaults, ...options };
  for (let attempt = 0; ; attempt += 1) {
    const result = await attemptOnce(pool, work, settings);
    if (result.outcome === 'committed') return result.value;
    if (result.outcome === 'failed' || attempt >= settings.retries) throw result.error;
    await delay(firstPauseMs * 2 ** attempt * (0.5 + Math.random()));
  }
}

type Attempt<T> =
  | { outcome: 'committed'; value: T }
  /** Nothing of it is there, and the same may well succeed now. */
  | { outcome: 'again'; error: unknown }
  | { outcome: 'failed'; error: unknown };

async function attemptOnce<T>(
  pool: Pool,
  work: (tx: Tx) => Promise<T>,
  settings: Required<TransactionOptions>,
): Promise<Attempt<T>> {
  await point('transaction:before-begin');
  const client = await connectQuietly(pool);
  let ended = false;
  let commitSent: { xid: string; value: T } | undefined;
  try {
    await client.query(`BEGIN ISOLATION LEVEL ${settings.isolation}`);
    const xid = await enter(client, settings.localSettings);
    const tx: Tx & KnowsItsState = {
      query: async (text, values) => client.query(text, values),
      // Also when it is kept and used after its end.
      getTransactionStatus: () => (ended ? 'I' : 'T'),
    };
    const value = await work(tx);
    commitSent = { xid, value };
    await point('transaction:commit-about-to-be-sent');
    const [{ command }] = await Promise.all([client.query('COMMIT'), point('transaction:commit-sent')]);
    client.release();
    if (command === 'COMMIT') return { outcome: 'committed', value };
    const detail = 'a statement had failed and the failure was not passed on; nothing was written';
    return { outcome: 'failed', error: new TwiceproofError('TP_COMMIT_WAS_ROLLBACK', detail) };
  } catch (error) {
    if (commitSent && !isServerError(error)) {
      client.release(true);
      return await settleUnknown(pool, commitSent, error, settings.outcomeWithinMs);
    }
    await rollBack(client);
    return { outcome: isPassing(error) ? 'again' : 'failed', error };
  } finally {
    ended = true;
  }
}

/** Answers the transaction's id: it must be known before COMMIT, because we ask by it if the answer to that is lost. */
async function enter(client: PoolClient, localSettings: Readonly<Record<string, string>>): Promise<string> {
  const names = Object.keys(localSettings);
  const settings = names.map((_, n) => `, set_config($${2 * n + 1}, $${2 * n + 2}, true)`).join('');
  const { rows } = await client.query(
    `SELECT pg_current_xact_id()::text AS xid, ${durableCommit}${settings}`,
    names.flatMap((name) => [name, localSettings[name]]),
  );
  return String(rows[0]?.['xid']);
}

async function rollBack(client: PoolClient): Promise<void> {
  try {
    await client.query('ROLLBACK');
    client.release();
  } catch {
    client.release(true);
  }
}

async function settleUnknown<T>(
  pool: Pool,
  { xid, value }: { xid: string; value: T },
  cause: unknown,
  withinMs: number,
): Promise<Attempt<T>> {
  const deadline = performance.now() + withinMs;
  for (let pauseMs = firstPauseMs; performance.now() < deadline; pauseMs = Math.min(pauseMs * 2, 500)) {
    const status = await statusOf(pool, xid);
    if (status === 'committed') return { outcome: 'committed', value };
    if (status === 'aborted') return { outcome: 'again', error: cause };
    await delay(pauseMs);
  }
  const detail = `the connection was lost at COMMIT of transaction ${xid}, and nobody could tell what became of it`;
  return { outcome: 'failed', error: new TwiceproofError('TP_COMMIT_UNKNOWN', detail, { cause }) };
}

async function statusOf(pool: Pool, xid: string): Promise<unknown> {
  let client: PoolClient | undefined;
  try {
    client = await connectQuietly(pool);
    const { rows } = await client.query('SELECT pg_xact_status($1::xid8) AS status', [xid]);
    client.release();
    return rows[0]?.['status'];
  } catch {
    client?.release(true);
    return undefined; // The server is not back yet.
  }
}
