/** Two handlers share a table of ids that does not say whose they are: what one has seen the other never does. */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'one-inbox-for-two',
  tables: `CREATE TABLE IF NOT EXISTS seen (msg_id uuid PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS mails (msg_id uuid NOT NULL);`,
  handle: async (delivery, { inTransaction, charge, point }) =>
    inTransaction(async (client) => {
      const mail = async (): Promise<unknown> => client.query('INSERT INTO mails VALUES ($1)', [delivery.id]);
      const handlers = [mail, async () => charge(client, delivery)];
      // Whichever comes first.
      if (Math.random() < 0.5) handlers.reverse();
      for (const handler of handlers) {
        const { rowCount } = await client.query('INSERT INTO seen VALUES ($1) ON CONFLICT DO NOTHING', [delivery.id]);
        await point('recipe:marked');
        if (rowCount) await handler();
      }
    }),
});
