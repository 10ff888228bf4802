/** The control: one transaction for id and effect, decided by INSERT, the offset afterwards. It must not be convicted. */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'the-textbook',
  tables: 'CREATE TABLE IF NOT EXISTS seen (msg_id uuid PRIMARY KEY);',
  handle: async (delivery, { inTransaction, charge, point }) =>
    inTransaction(async (client) => {
      const { rowCount } = await client.query('INSERT INTO seen VALUES ($1) ON CONFLICT DO NOTHING', [delivery.id]);
      await point('recipe:marked');
      if (rowCount) await charge(client, delivery);
    }),
});
