import { withCauses } from './failure.ts';
import type { Tx } from './tx.ts';

/** What we need of a `pg` pool. */
export interface Pool {
  connect(): Promise<PoolClient>;
  on?(event: 'connect', listener: (client: PoolClient) => void): unknown;
}

export interface QueryResult {
  rows: Record<string, unknown>[];
  rowCount: number | null;
  command?: string;
}

export interface PoolClient extends Tx {
  query(text: string, values?: unknown[]): Promise<QueryResult>;
  /** With `true` the connection is closed instead of being used again. */
  release(destroy?: boolean): void;
  on?(event: 'error', listener: () => void): unknown;
  off?(event: 'error', listener: () => void): unknown;
}

/** What a `pg` client can do besides: a statement with a name is parsed once on a connection, and soon planned once. */
export interface NamesStatements {
  query(statement: { name: string; text: string; values: unknown[] }): Promise<QueryResult>;
}

const quietPools = new WeakSet<Pool>();
const ignore = (): void => {};

/** A connection that breaks between two queries tells so by an event, and one that nobody listens to ends the process. */
export async function connectQuietly(pool: Pool): Promise<PoolClient> {
  if (!quietPools.has(pool)) {
    quietPools.add(pool);
    // A server that greets and dies in one breath: the pool listens no more, and we have not been given the client yet.
    pool.on?.('connect', (client) => client.on?.('error', ignore));
  }
  const client = await pool.connect();
  const { release } = client;
  client.on?.('error', ignore);
  client.release = (destroy) => {
    client.off?.('error', ignore);
    client.release = release;
    release.call(client, destroy);
  };
  return client;
}

/** The server has answered, so the transaction is over, and rolled back. Anything else is the connection's. */
export function isServerError(error: unknown): boolean {
  const code = (error as { code?: unknown }).code;
  // Five letters or digits, and a digit among them: EPIPE is the socket's. 57P01 to 57P03: the server ends the
  // connection, perhaps between the commit and its answer.
  return typeof code === 'string' && /^(?!57P|08)(?=.*\d)[0-9A-Z]{5}$/.test(code);
}

const passing: ReadonlySet<unknown> = new Set(['40001', '40P01', 'TP_INBOX_EXPIRED']);

export function isPassing(error: unknown): boolean {
  return withCauses(error).some((each) => passing.has((each as { code?: unknown } | null | undefined)?.code));
}

/**
 * Part of a SELECT list: what a client is told to be done must be on disk, whatever is usual on this server. Where more
 * is usual (a standby that has it too), more it stays.
 */
export const durableCommit = `set_config('synchronous_commit',
  CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
       ELSE current_setting('synchronous_commit') END, true)`;
