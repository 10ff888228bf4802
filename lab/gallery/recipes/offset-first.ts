/** The offset is committed before the transaction is, as automatic commits do whenever their time has come. */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'offset-first',
  settle: 'before',
  tables: 'CREATE TABLE IF NOT EXISTS seen (msg_id uuid PRIMARY KEY);',
  handle: async (delivery, { inTransaction, charge, point }) =>
    inTransaction(async (client) => {
      const { rowCount } = await client.query('INSERT INTO seen VALUES ($1) ON CONFLICT DO NOTHING', [delivery.id]);
      await point('recipe:marked');
      if (rowCount) await charge(client, delivery);
    }),
});
