/** The control of the relays: one at a time; published, acknowledged, and only then marked. It must not be convicted. */
import { oneAtATime, rowColumns, runRelay, type Row } from '../relay.ts';

await runRelay({
  name: 'sent-then-marked',
  tables: 'CREATE TABLE IF NOT EXISTS published (id bigint PRIMARY KEY);',
  pass: async ({ inTransaction, send, point }) =>
    inTransaction(async (client) => {
      await oneAtATime(client);
      const { rows } = await client.query<Row>(
        `SELECT ${rowColumns} FROM twiceproof.outbox o LEFT JOIN published p USING (id) WHERE p.id IS NULL ORDER BY o.id LIMIT 50`,
      );
      if (rows.length === 0) return 0;
      await send(rows);
      await point('recipe:sent');
      await client.query('INSERT INTO published SELECT unnest($1::bigint[])', [rows.map(({ id }) => id)]);
      return rows.length;
    }),
});
