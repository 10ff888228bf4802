/** Three attempts, then the message is logged and dropped, "so that it does not block the others". */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'given-up',
  tables: 'CREATE TABLE IF NOT EXISTS seen (msg_id uuid PRIMARY KEY);',
  handle: async (delivery, { inTransaction, charge, point }) => {
    for (let attempt = 1; attempt <= 3; attempt += 1) {
      try {
        return await inTransaction(async (client) => {
          const { rowCount } = await client.query('INSERT INTO seen VALUES ($1) ON CONFLICT DO NOTHING', [delivery.id]);
          await point('recipe:marked');
          if (rowCount) await charge(client, delivery);
        });
      } catch {
        // Once more.
      }
    }
  },
});
