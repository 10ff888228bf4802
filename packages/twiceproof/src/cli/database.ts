import type { Pool, PoolClient } from '../connection.ts';
import { connectQuietly } from '../connection.ts';
import { TwiceproofError } from '../errors.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { WrongCall } from './call.ts';

/** Runs a command on the database in DATABASE_URL, and makes its failures known by an exit code. */
export async function onDatabase(
  work: (pool: Pool) => Promise<number>,
  applicationName = 'twiceproof-cli',
): Promise<number> {
  const url = process.env['DATABASE_URL'];
  if (!url) throw new WrongCall('DATABASE_URL is not set: postgres://user:password@host:port/database');
  // Only here, since there are commands that need no client.
  const { default: pg } = await import('pg');
  const pool = new pg.Pool({
    connectionString: url,
    max: 2,
    connectionTimeoutMillis: 10_000,
    application_name: applicationName,
  });
  // A connection that is lost while it is idle: the next question finds out.
  pool.on('error', () => {});
  try {
    return await work(pool);
  } catch (error) {
    if (error instanceof TwiceproofError || error instanceof WrongCall) throw error;
    const { message, code = '' } = error as NodeJS.ErrnoException;
    console.error(`twiceproof: it failed: ${message || code}${hint(code)}`);
    return /^(ECONN|ENOTFOUND|ETIMEDOUT|EHOST|EAI_|08|28|3D|57P)/.test(code) ? 3 : 1;
  } finally {
    await pool.end();
  }
}

function hint(code: string): string {
  if (['42P01', '42703', '3F000'].includes(code)) return '\n  Run `twiceproof migrate`, or correct --schema.';
  if (code === '42501') return '\n  docs/operations.md says which role a command needs.';
  if (code === '55P03')
    return '\n  Somebody held it for too long: a relay that stands still, or a long transaction. Try again.';
  return '';
}

export function isLockTimeout(error: unknown): boolean {
  return (error as { code?: unknown }).code === '55P03';
}

/** To read a whole log takes as long as it takes: somebody waits for it, and can stop it. */
export const longReadMs = 6 * 3_600_000;

/** One statement or several that only read. */
export async function reading<T>(pool: Pool, work: (tx: Tx) => Promise<T>): Promise<T> {
  return transaction(pool, work, { statementWithinMs: longReadMs });
}

/** Says the same again and again while a long statement runs; how often people hear it is for `onProgress`. */
export async function saying<T>(
  onProgress: ((text: string) => void) | undefined,
  text: string,
  work: Promise<T>,
): Promise<T> {
  onProgress?.(text);
  const timer = setInterval(() => onProgress?.(text), 500);
  try {
    return await work;
  } finally {
    clearInterval(timer);
  }
}

/** As `transaction`, for work that needs one without an id; it is not run again. */
export async function newTransaction<T>(
  pool: Pool,
  settings: Readonly<Record<string, string>>,
  work: (tx: Tx) => Promise<T>,
): Promise<T> {
  const client: PoolClient = await connectQuietly(pool);
  try {
    await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
    for (const [name, value] of Object.entries(settings)) {
      await client.query('SELECT set_config($1, $2, true)', [name, value]);
    }
    const result = await work(client);
    const { command } = await client.query('COMMIT');
    if (command !== 'COMMIT') throw new TwiceproofError('TP_COMMIT_WAS_ROLLBACK', 'nothing was written');
    client.release();
    return result;
  } catch (error) {
    // Closed, not given back: the server takes back whatever was under way.
    client.release(true);
    throw error;
  }
}
