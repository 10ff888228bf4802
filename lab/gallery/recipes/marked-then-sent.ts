/** Rows are marked as published, that is committed, and then they are published. */
import { oneAtATime, rowColumns, runRelay, type Row } from '../relay.ts';

await runRelay({
  name: 'marked-then-sent',
  tables: 'CREATE TABLE IF NOT EXISTS published (id bigint PRIMARY KEY);',
  pass: async ({ inTransaction, send, point }) => {
    const rows = await inTransaction(async (client) => {
      await oneAtATime(client);
      const found = await client.query<Row>(
        `SELECT ${rowColumns} FROM twiceproof.outbox o LEFT JOIN published p USING (id) WHERE p.id IS NULL ORDER BY o.id LIMIT 50`,
      );
      await client.query('INSERT INTO published SELECT unnest($1::bigint[])', [found.rows.map(({ id }) => id)]);
      return found.rows;
    });
    if (rows.length === 0) return 0;
    await point('recipe:marked');
    await send(rows);
    return rows.length;
  },
});
