/** Ids are forgotten after five seconds, because "retries come at once". */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'guessed-ttl',
  settleEveryMs: 10_000,
  tables:
    'CREATE TABLE IF NOT EXISTS seen (msg_id uuid PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());',
  handle: async (delivery, { inTransaction, charge, point }) =>
    inTransaction(async (client) => {
      await client.query("DELETE FROM seen WHERE msg_id = $1 AND at < clock_timestamp() - interval '5 seconds'", [
        delivery.id,
      ]);
      const { rowCount } = await client.query('INSERT INTO seen (msg_id) VALUES ($1) ON CONFLICT DO NOTHING', [
        delivery.id,
      ]);
      await point('recipe:marked');
      if (rowCount) await charge(client, delivery);
    }),
});
