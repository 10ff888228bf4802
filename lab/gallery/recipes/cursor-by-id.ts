/** `id > last`: but ids are drawn before the commit, so one that is lower may appear later. */
import { oneAtATime, rowColumns, runRelay, type Row } from '../relay.ts';

await runRelay({
  name: 'cursor-by-id',
  tables: 'CREATE TABLE IF NOT EXISTS recipe_cursor AS SELECT 0::bigint AS last;',
  pass: async ({ inTransaction, send, point }) =>
    inTransaction(async (client) => {
      await oneAtATime(client);
      const { rows } = await client.query<Row>(
        `SELECT ${rowColumns} FROM twiceproof.outbox o, recipe_cursor WHERE o.id > last ORDER BY o.id LIMIT 200`,
      );
      if (rows.length === 0) return 0;
      await send(rows);
      await point('recipe:sent');
      await client.query('UPDATE recipe_cursor SET last = $1', [rows.at(-1)!.id]);
      return rows.length;
    }),
});
