/** The id is marked on a connection of its own, which commits at once; then comes the effect. */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'mark-first',
  tables: 'CREATE TABLE IF NOT EXISTS seen (msg_id uuid PRIMARY KEY);',
  handle: async (delivery, { pool, inTransaction, charge, point }) => {
    const { rowCount } = await pool.query('INSERT INTO seen VALUES ($1) ON CONFLICT DO NOTHING', [delivery.id]);
    if (!rowCount) return;
    await point('recipe:marked');
    await inTransaction(async (client) => charge(client, delivery));
  },
});
