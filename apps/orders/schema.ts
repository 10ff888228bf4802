import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { migrate, migrations } from 'twiceproof/migrations';
import { transaction, type Pool } from 'twiceproof/transaction';
import type { Tx } from 'twiceproof/tx';

const folder = join(import.meta.dirname, 'sql');
const own = readdirSync(folder)
  .filter((file) => /^\d{4}_.*\.sql$/.test(file))
  .toSorted()
  .map((name) => ({ number: Number(name.slice(0, 4)), name, sql: readFileSync(join(folder, name), 'utf8') }));

/** The library's tables and ours. Several processes may start at once: they take turns. */
export async function migrateOrders(pool: Pool): Promise<void> {
  await migrate(pool);
  await transaction(pool, async (tx) => {
    await tx.query("SELECT pg_advisory_xact_lock(hashtextextended('orders migrate', 0))");
    await tx.query('CREATE TABLE IF NOT EXISTS orders_migrations (number int PRIMARY KEY, name text NOT NULL)');
    for (const { number, name, sql } of own) {
      const { rowCount } = await tx.query('SELECT 1 FROM orders_migrations WHERE number = $1', [number]);
      if (rowCount) continue;
      await tx.query(sql);
      await tx.query('INSERT INTO orders_migrations VALUES ($1, $2)', [number, name]);
    }
  });
}

const newest = { own: own.at(-1)?.number, library: migrations().at(-1)?.number };

/** Whether the database can be reached and has the tables that this program needs; throws if not. A newer one will do. */
export async function requireMigrated(database: Tx): Promise<void> {
  const { rowCount } = await database.query(
    `SELECT 1 WHERE (SELECT max(number) FROM orders_migrations) >= $1
       AND (SELECT max(number) FROM twiceproof.migrations) >= $2`,
    [newest.own, newest.library],
  );
  if (!rowCount) throw new Error('the database is not migrated');
}
