/** What the recipes have in common on the side of Postgres. They are crash-only: what fails ends the process. */
import pg from 'pg';

export type Database = Pick<pg.ClientBase, 'query'>;

/** Several start at once: they take turns. */
export async function openDatabase(url: string | undefined, tables: string): Promise<pg.Pool> {
  const pool = new pg.Pool({ connectionString: url, max: 8, connectionTimeoutMillis: 5_000, query_timeout: 10_000 });
  // A connection was lost; whoever uses it hears of it.
  pool.on('error', () => {});
  await inTransaction(pool, async (client) => {
    await client.query("SELECT pg_advisory_xact_lock(hashtextextended('recipe tables', 0))");
    await client.query(tables);
  });
  return pool;
}

export async function inTransaction<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const result = await work(client);
    const { command } = await client.query('COMMIT');
    if (command !== 'COMMIT') throw new Error('it was rolled back');
    client.release();
    return result;
  } catch (error) {
    client.release(true);
    throw error;
  }
}
