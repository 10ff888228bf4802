/** The record's key is taken for the message's id: but a key has many messages. */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'key-as-id',
  tables: 'CREATE TABLE IF NOT EXISTS seen (key text PRIMARY KEY);',
  handle: async (delivery, { inTransaction, charge, point }) =>
    inTransaction(async (client) => {
      const { rowCount } = await client.query('INSERT INTO seen VALUES ($1) ON CONFLICT DO NOTHING', [delivery.key]);
      await point('recipe:marked');
      if (rowCount) await charge(client, delivery);
    }),
});
