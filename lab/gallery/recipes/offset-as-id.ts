/** Partition and offset are taken for the message's id: but what the relay publishes again has another offset. */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'offset-as-id',
  tables: 'CREATE TABLE IF NOT EXISTS seen (lane int, place bigint, PRIMARY KEY (lane, place));',
  handle: async (delivery, { inTransaction, charge, point }) =>
    inTransaction(async (client) => {
      const { rowCount } = await client.query('INSERT INTO seen VALUES ($1, $2) ON CONFLICT DO NOTHING', [
        delivery.partition,
        delivery.offset,
      ]);
      await point('recipe:marked');
      if (rowCount) await charge(client, delivery);
    }),
});
