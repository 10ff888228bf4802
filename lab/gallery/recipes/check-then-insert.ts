/** "Have I seen it?", and if not, do it and remember: all in one transaction, and two can ask at the same time. */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'check-then-insert',
  tables: 'CREATE TABLE IF NOT EXISTS seen (msg_id uuid); CREATE INDEX IF NOT EXISTS seen_by_id ON seen (msg_id);',
  handle: async (delivery, { inTransaction, charge, point }) =>
    inTransaction(async (client) => {
      const { rowCount } = await client.query('SELECT FROM seen WHERE msg_id = $1', [delivery.id]);
      if (rowCount) return;
      await point('recipe:checked');
      await charge(client, delivery);
      await client.query('INSERT INTO seen VALUES ($1)', [delivery.id]);
    }),
});
