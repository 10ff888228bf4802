import { connectQuietly, type Pool } from '../connection.ts';
import { migrate, migrationSql } from '../migrations/migrate.ts';
import type { Command } from './call.ts';
import { onDatabase } from './database.ts';
import { quotedSchema } from '../schema-name.ts';
import { rolesSql } from './roles.ts';

export const migrateCommand: Command = {
  summary: 'apply the migrations that are missing',
  flags: ['schema', 'shards'],
  async run(call) {
    const { schema } = call;
    const shards = call.number('shards', { min: 0, max: Number.MAX_SAFE_INTEGER });
    return onDatabase(async (pool) => {
      const applied = await migrate(pool, {
        ...(schema !== undefined && { schema }),
        ...(shards !== undefined && { shards }),
      });
      const text =
        applied.length === 0 ? 'Nothing to do: all migrations are applied.' : `Applied: ${applied.join(', ')}`;
      call.answer({ applied }, text);
      if (shards !== undefined) await warnOfOtherCount(pool, shards, schema);
      return 0;
    });
  },
};

/** Not an error: a script that migrates before each start goes on giving the count with which it all began. */
async function warnOfOtherCount(pool: Pool, wanted: number, schema: string | undefined): Promise<void> {
  const client = await connectQuietly(pool);
  const { rows } = await client.query(`SELECT shards FROM ${quotedSchema(schema)}.settings`);
  client.release();
  const shards = Number(rows[0]?.['shards']);
  if (shards === wanted) return;
  console.error(
    `The outbox has ${shards} shards, not ${wanted}: --shards counts for the first migration. To change it: twiceproof outbox reshard ${wanted}`,
  );
}

export const sqlCommand: Command = {
  summary: 'print the migrations, for people who use another migration tool',
  flags: ['schema', 'roles', 'shards'],
  async run(call) {
    const { schema } = call;
    const shards = call.number('shards', { min: 0, max: Number.MAX_SAFE_INTEGER });
    const sql = call.has('roles')
      ? rolesSql(schema)
      : migrationSql({ ...(schema !== undefined && { schema }), ...(shards !== undefined && { shards }) });
    call.answer({ sql }, sql);
    return 0;
  },
};
