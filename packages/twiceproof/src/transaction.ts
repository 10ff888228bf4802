import { setTimeout as delay } from 'node:timers/promises';
import {
  connectQuietly,
  durableCommit,
  isPassing,
  isServerError,
  type Pool,
  type PoolClient,
  type QueryResult,
} from './connection.ts';
import { withDefaults } from './defaults.ts';
import { TwiceproofError } from './errors.ts';
import { arePlansPast, isNameLost, type NamesItsStatements, type RunStatement } from './named-statements.ts';
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
  /** How our own statements in it are sent. Defaults to without a name. */
  statements?: RunStatement;
}

const defaults = { isolation: 'READ COMMITTED', retries: 5, localSettings: {}, outcomeWithinMs: 10_000 } as const;
const firstPauseMs = 10;
const isolations: ReadonlySet<string> = new Set(['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE']);

/**
 * Runs `work` in a transaction and answers what it answers, once that is committed.
 *
 * - A COMMIT that was really a ROLLBACK is an error. (The server answers so when a statement had failed
 *   and the failure was swallowed, and node-postgres resolves it.)
 * - Serialization failures and deadlocks run the whole again, decisions included. Ids that must not change
 *   between attempts are made outside.
 * - When the connection is lost at COMMIT, the server is asked what became of the transaction. `work` runs
 *   again only if it is known to have been rolled back; if nobody can tell, `TP_COMMIT_UNKNOWN` is thrown. Nobody
 *   can when the server has crashed in between: ids that were not on disk by then are given to others.
 * - A connection whose state is not known is closed, not given back.
 */
export async function transaction<T>(
  pool: Pool,
  work: (tx: Tx) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  const settings = withDefaults(defaults, options);
  if (!isolations.has(settings.isolation)) {
    throw new TwiceproofError('TP_OPTION', `isolation is one of ${[...isolations].join(', ')}`);
  }
  for (let attempt = 0; ; attempt += 1) {
    const result = await attemptOnce(pool, work, settings);
    if (result.outcome === 'committed') return result.value;
    if (result.outcome === 'failed' || attempt >= settings.retries) throw result.error;
    await delay(firstPauseMs * 2 ** attempt * (0.5 + Math.random()));
  }
}

/** Not `ROLLBACK TO`, which goes back to a savepoint. */
const endsTransaction =
  /^\s*(begin|start\s+transaction|commit|end|abort|rollback(?!\s+(work\s+|transaction\s+)?to\b)|prepare\s+transaction)\b/i;

type Settings = Required<Omit<TransactionOptions, 'statements'>> & Pick<TransactionOptions, 'statements'>;

type Attempt<T> =
  | { outcome: 'committed'; value: T }
  /** Nothing of it is there, and the same may well succeed now. */
  | { outcome: 'again'; error: unknown }
  | { outcome: 'failed'; error: unknown };

async function attemptOnce<T>(pool: Pool, work: (tx: Tx) => Promise<T>, settings: Settings): Promise<Attempt<T>> {
  await point('transaction:before-begin');
  const client = await connectQuietly(pool);
  let ended = false;
  let commitSent: { id: TransactionId; value: T } | undefined;
  try {
    const id = await begin(client, settings);
    const { statements } = settings;
    const tx: Tx & KnowsItsState & Partial<NamesItsStatements> = {
      ...(statements && { queryNamed: async (text, values = []) => statements(client, text, values) }),
      query: async (text, values) => {
        // By then the connection is somebody else's.
        if (ended) throw new TwiceproofError('TP_NOT_IN_TRANSACTION', 'the transaction has ended');
        if (endsTransaction.test(text)) throw new TwiceproofError('TP_TRANSACTION_CONTROL', `'${text.slice(0, 40)}'`);
        return client.query(text, values);
      },
      // Also when it is kept and used after its end.
      getTransactionStatus: () => (ended ? 'I' : 'T'),
    };
    const value = await work(tx);
    commitSent = { id, value };
    await point('transaction:commit-about-to-be-sent');
    const [{ command }] = await Promise.all([client.query('COMMIT'), point('transaction:commit-sent')]);
    client.release(statements !== undefined && arePlansPast(client, Date.now()));
    if (command === 'COMMIT') return { outcome: 'committed', value };
    const detail = 'a statement had failed and the failure was not passed on; nothing was written';
    return { outcome: 'failed', error: new TwiceproofError('TP_COMMIT_WAS_ROLLBACK', detail) };
  } catch (error) {
    if (commitSent && !isServerError(error)) {
      client.release(true);
      return await settleUnknown(pool, commitSent, error, settings.outcomeWithinMs);
    }
    await rollBack(client);
    return { outcome: isPassing(error) || isNameLost(error) ? 'again' : 'failed', error };
  } finally {
    ended = true;
  }
}

interface TransactionId {
  xid: string;
  /** Of the server, from one crash to the next. */
  life: string;
}

/**
 * A server that was started anew has another first, and one that has recovered from the crash of one of its own processes
 * another second: recovery begins all statistics anew. (A reset by hand only makes us more careful.)
 */
const life = `concat(pg_postmaster_start_time(), ' ', pg_stat_get_bgwriter_stat_reset_time())`;

/**
 * Answers the transaction's id: it must be known before COMMIT, because we ask by it if the answer to that is lost. One
 * round trip, hence no parameters.
 */
async function begin(
  client: PoolClient,
  { isolation, localSettings }: Pick<Required<TransactionOptions>, 'isolation' | 'localSettings'>,
): Promise<TransactionId> {
  const settings = Object.entries(localSettings).map(
    ([name, value]) => `, set_config(${literal(name)}, ${literal(value)}, true)`,
  );
  const results = await client.query(`BEGIN ISOLATION LEVEL ${isolation};
    SELECT pg_current_xact_id()::text AS xid, ${life} AS life, ${durableCommit}${settings.join('')}`);
  const row = (results as unknown as QueryResult[])[1]?.rows[0];
  return { xid: String(row?.['xid']), life: String(row?.['life']) };
}

/** The same whether the server takes backslashes literally or not. */
function literal(text: string): string {
  return `E'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
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
  { id, value }: { id: TransactionId; value: T },
  cause: unknown,
  withinMs: number,
): Promise<Attempt<T>> {
  const deadline = performance.now() + withinMs;
  for (let pauseMs = firstPauseMs; performance.now() < deadline; pauseMs = Math.min(pauseMs * 2, 500)) {
    const status = await statusOf(pool, id);
    if (status === 'committed') return { outcome: 'committed', value };
    if (status === 'aborted') return { outcome: 'again', error: cause };
    if (status === 'of another') break;
    await delay(pauseMs);
  }
  const detail = `the connection was lost at COMMIT of transaction ${id.xid}, and nobody could tell what became of it`;
  return { outcome: 'failed', error: new TwiceproofError('TP_COMMIT_UNKNOWN', detail, { cause }) };
}

/**
 * After a crash an id that never came to disk is free again, and whoever gets it may commit. So `committed` may be said of
 * another. `aborted` is true of ours all the same: had ours been committed, its id would not have been free.
 */
async function statusOf(pool: Pool, id: TransactionId): Promise<string | undefined> {
  let client: PoolClient | undefined;
  try {
    client = await connectQuietly(pool);
    const text = `SELECT pg_xact_status($1::xid8) AS status, ${life} AS life`;
    const { rows } = await client.query(text, [id.xid]);
    client.release();
    const status = String(rows[0]?.['status']);
    return status !== 'aborted' && rows[0]?.['life'] !== id.life ? 'of another' : status;
  } catch (error) {
    client?.release(true);
    // "is in the future": lost in a crash, and not given to another yet.
    if ((error as { code?: unknown }).code === '22023') return 'aborted';
    return undefined; // The server is not back yet.
  }
}
