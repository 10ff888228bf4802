import { setTimeout as delay } from 'node:timers/promises';
import { connectWithin } from './answered.ts';
import { durableCommit, isPassing, isServerError, type Pool, type PoolClient, type QueryResult } from './connection.ts';
import { withDefaults } from './defaults.ts';
import { TwiceproofError } from './errors.ts';
import { arePlansPast, isNameLost, type NamesItsStatements, type RunStatement } from './named-statements.ts';
import { point } from './points.ts';
import { withStandby } from './standby.ts';
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
  /**
   * How long a statement in it may take: then the server ends it, and if that says nothing either, the connection is given
   * up. Where the server allows less, less it stays. Defaults to 60,000.
   */
  statementWithinMs?: number;
  /** How our own statements in it are sent. Defaults to without a name. */
  statements?: RunStatement;
}

const defaults = {
  isolation: 'READ COMMITTED',
  retries: 5,
  localSettings: {},
  outcomeWithinMs: 10_000,
  statementWithinMs: 60_000,
} as const;
/** For the answer that a statement was ended, at most. */
const graceMs = 5_000;
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

/** Not `ROLLBACK TO`, which goes back to a savepoint. What hides behind another statement is noticed at the end. */
const endsTransaction =
  /^(?:\s|;|--[^\n]*(?:\n|$)|\/\*[\s\S]*?\*\/)*(begin|start\s+transaction|commit|end|abort|rollback(?!\s+(work\s+|transaction\s+)?to\b)|prepare\s+transaction)\b/i;

type Settings = Required<Omit<TransactionOptions, 'statements'>> & Pick<TransactionOptions, 'statements'>;

type Attempt<T> =
  | { outcome: 'committed'; value: T }
  /** Nothing of it is there, and the same may well succeed now. */
  | { outcome: 'again'; error: unknown }
  | { outcome: 'failed'; error: unknown };

async function attemptOnce<T>(pool: Pool, work: (tx: Tx) => Promise<T>, settings: Settings): Promise<Attempt<T>> {
  await point('transaction:before-begin');
  const client = await connectWithin(pool, settings.statementWithinMs + Math.min(graceMs, settings.statementWithinMs));
  /** What is sent through `tx` from now on would stand behind our COMMIT or ROLLBACK, and be committed by itself. */
  let ended = false;
  let commitSent: { id: TransactionId; value: T } | undefined;
  /** The server has not said what became of a statement: on a wire that is silent, ROLLBACK would wait as long again. */
  let isUnanswered = false;
  /** What a statement of the work has done to the transaction; also where the work has kept it to itself. */
  let endedBy: TwiceproofError | undefined;
  const answered = async <R>(sent: Promise<R>): Promise<R> =>
    sent.catch((error: unknown) => {
      isUnanswered ||= !isServerError(error);
      throw error;
    });
  try {
    const id = await answered(begin(client, settings));
    const { statements } = settings;
    const tx: Tx & KnowsItsState & Partial<NamesItsStatements> = {
      ...(statements && {
        queryNamed: async (text, values = []) => {
          requireOpen();
          return answered(statements(client, text, values));
        },
      }),
      query: async (text, values) => {
        requireOpen();
        requireNoEnd(text);
        const result = await answered(client.query(text, values));
        endedBy ??= hiddenEnd(result);
        if (endedBy) throw endedBy;
        return result;
      },
      // Also when it is kept and used after its end.
      getTransactionStatus: () => (ended ? 'I' : 'T'),
    };
    const value = await work(tx).finally(() => {
      ended = true;
    });
    if (endedBy) throw endedBy;
    requireStillInside(client);
    commitSent = { id, value };
    await point('transaction:commit-about-to-be-sent');
    const committing = withStandby(client, async () => client.query('COMMIT'));
    const [{ command }] = await Promise.all([committing, point('transaction:commit-sent')]);
    client.release(statements !== undefined && arePlansPast(client, Date.now()));
    if (command === 'COMMIT') return { outcome: 'committed', value };
    const detail = 'a statement had failed and the failure was not passed on; nothing was written';
    return { outcome: 'failed', error: new TwiceproofError('TP_COMMIT_WAS_ROLLBACK', detail) };
  } catch (error) {
    if (commitSent && !isServerError(error)) {
      client.release(true);
      if (error instanceof TwiceproofError) return { outcome: 'failed', error };
      return await settleUnknown(pool, commitSent, error, settings.outcomeWithinMs);
    }
    ended = true;
    await rollBack(client, isUnanswered);
    if (endedBy) return { outcome: 'failed', error: endedBy };
    return { outcome: isPassing(error) || isNameLost(error) ? 'again' : 'failed', error };
  }

  function requireOpen(): void {
    if (ended) throw new TwiceproofError('TP_NOT_IN_TRANSACTION', 'the transaction has ended');
  }
}

/** Also of a statement as an object, which is no business of ours but goes through many a client. */
function requireNoEnd(statement: string | { text?: unknown }): void {
  const text = typeof statement === 'string' ? statement : String(statement.text);
  if (endsTransaction.test(text)) throw new TwiceproofError('TP_TRANSACTION_CONTROL', `'${text.slice(0, 40)}'`);
}

/** Several statements in one text have a result each, with their commands: COMMIT among them is done, whatever comes now. */
function hiddenEnd(result: QueryResult | QueryResult[]): TwiceproofError | undefined {
  if (!Array.isArray(result)) return undefined;
  const commands = new Set(result.map(({ command }) => command));
  const detail = 'a statement behind another one has ended the transaction';
  if (commands.has('COMMIT')) return new TwiceproofError('TP_COMMIT_UNKNOWN', detail);
  return commands.has('BEGIN') || commands.has('START')
    ? new TwiceproofError('TP_TRANSACTION_CONTROL', detail)
    : undefined;
}

/** A client that knows its state tells it when a statement of the work has ended the transaction by itself. */
function requireStillInside(client: PoolClient & KnowsItsState): void {
  if (client.getTransactionStatus?.() !== 'I') return;
  throw new TwiceproofError('TP_TRANSACTION_CONTROL', 'a statement has ended the transaction');
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
  { isolation, localSettings, statementWithinMs }: Settings,
): Promise<TransactionId> {
  const settings = Object.entries(localSettings).map(
    ([name, value]) => `, set_config(${literal(name)}, ${literal(value)}, true)`,
  );
  const results = await client.query(`BEGIN ISOLATION LEVEL ${isolation};
    SELECT pg_current_xact_id()::text AS xid, ${life} AS life, ${durableCommit},
      ${statementTimeout(statementWithinMs)}${settings.join('')}`);
  const row = (results as unknown as QueryResult[])[1]?.rows[0];
  return { xid: String(row?.['xid']), life: String(row?.['life']) };
}

/** The same whether the server takes backslashes literally or not. */
function literal(text: string): string {
  return `E'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
}

/** Part of a SELECT list. None is written as 0. */
function statementTimeout(ms: number): string {
  const [usual, ours] = [`current_setting('statement_timeout')`, `'${Math.ceil(ms)}ms'`];
  return `set_config('statement_timeout', CASE WHEN ${usual}::interval > '0' AND ${usual}::interval < ${ours}::interval
        THEN ${usual} ELSE ${ours} END, true)`;
}

async function rollBack(client: PoolClient, isUnanswered: boolean): Promise<void> {
  if (isUnanswered) return client.release(true);
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
    const status = await statusOf(pool, id, Math.max(1, deadline - performance.now()));
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
async function statusOf(pool: Pool, id: TransactionId, withinMs: number): Promise<string | undefined> {
  let client: PoolClient | undefined;
  try {
    client = await connectWithin(pool, withinMs);
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
