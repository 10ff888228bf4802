/** INSERT ... ON CONFLICT DO NOTHING, and nobody reads whether it has inserted anything. */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'count-not-read',
  tables: 'CREATE TABLE IF NOT EXISTS seen (msg_id uuid PRIMARY KEY);',
  handle: async (delivery, { inTransaction, charge, point }) =>
    inTransaction(async (client) => {
      await client.query('INSERT INTO seen VALUES ($1) ON CONFLICT DO NOTHING', [delivery.id]);
      await point('recipe:marked');
      await charge(client, delivery);
    }),
});
