/** The send is not waited for, because "the client retries by itself". */
import { oneAtATime, rowColumns, runRelay, type Row } from '../relay.ts';

await runRelay({
  name: 'not-acknowledged',
  tables: 'CREATE TABLE IF NOT EXISTS published (id bigint PRIMARY KEY);',
  pass: async ({ inTransaction, send, point }) =>
    inTransaction(async (client) => {
      await oneAtATime(client);
      const { rows } = await client.query<Row>(
        `SELECT ${rowColumns} FROM twiceproof.outbox o LEFT JOIN published p USING (id) WHERE p.id IS NULL ORDER BY o.id LIMIT 50`,
      );
      if (rows.length === 0) return 0;
      send(rows, { acks: 'none' }).catch(() => {});
      await point('recipe:sent');
      await client.query('INSERT INTO published SELECT unnest($1::bigint[])', [rows.map(({ id }) => id)]);
      return rows.length;
    }),
});
