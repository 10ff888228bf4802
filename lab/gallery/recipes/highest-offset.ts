/** Messages are handled side by side, and whichever is done commits its offset: also past those that are not. */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'highest-offset',
  settle: 'whichever',
  tables: 'CREATE TABLE IF NOT EXISTS seen (msg_id uuid PRIMARY KEY);',
  handle: async (delivery, { inTransaction, charge, point }) =>
    inTransaction(async (client) => {
      const { rowCount } = await client.query('INSERT INTO seen VALUES ($1) ON CONFLICT DO NOTHING', [delivery.id]);
      await point('recipe:marked');
      // Nobody works in parallel but who has work that takes its time, and not always the same.
      await client.query('SELECT pg_sleep(random() * 0.1)');
      if (rowCount) await charge(client, delivery);
    }),
});
