import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { migrate } from 'twiceproof/migrations';
import { transaction, type Pool } from 'twiceproof/transaction';
import type { Tx } from 'twiceproof/tx';

const folder = join(import.meta.dirname, 'sql');
const own = readdirSync(folder)
  .filter((file) => /^\d{4}_.*\.sql$/.test(file))
  .toSorted()
  .map((name) => ({ number: Number(name.slice(0, 4)), name, sql: readFileSync(join(folder, name), 'utf8') }));

export interface SchemaOptions {
  /** Whether the database itself refuses a second charge of an order. */
  uniqueCharge: boolean;
}

/** The library's tables and ours, which may stand beside those of orders. Several may start at once: they take turns. */
export async function migratePayments(pool: Pool, { uniqueCharge }: SchemaOptions): Promise<void> {
  await migrate(pool);
  await transaction(pool, async (tx) => {
    await tx.query("SELECT pg_advisory_xact_lock(hashtextextended('payments migrate', 0))");
    await tx.query('CREATE TABLE IF NOT EXISTS payments_migrations (number int PRIMARY KEY, name text NOT NULL)');
    for (const { number, name, sql } of own) {
      const { rowCount } = await tx.query('SELECT 1 FROM payments_migrations WHERE number = $1', [number]);
      if (rowCount) continue;
      await tx.query(sql);
      await tx.query('INSERT INTO payments_migrations VALUES ($1, $2)', [number, name]);
    }
    await setUniqueCharge(tx, uniqueCharge);
  });
}

/** Whoever ran before may have wanted it otherwise. Looked at first: changing it makes everybody wait. */
async function setUniqueCharge(tx: Tx, wanted: boolean): Promise<void> {
  const { rowCount } = await tx.query(
    "SELECT 1 FROM pg_constraint WHERE conname = 'charges_once' AND conrelid = 'charges'::regclass",
  );
  if (wanted === (rowCount === 1)) return;
  await tx.query(
    `ALTER TABLE charges ${wanted ? 'ADD CONSTRAINT charges_once UNIQUE (order_id)' : 'DROP CONSTRAINT charges_once'}`,
  );
}
