/** The effect is committed, and then the id is marked in a transaction of its own. */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'mark-last',
  tables: 'CREATE TABLE IF NOT EXISTS seen (msg_id uuid PRIMARY KEY);',
  handle: async (delivery, { pool, inTransaction, charge, point }) => {
    const { rowCount } = await pool.query('SELECT FROM seen WHERE msg_id = $1', [delivery.id]);
    if (rowCount) return;
    await inTransaction(async (client) => charge(client, delivery));
    await point('recipe:charged');
    await pool.query('INSERT INTO seen VALUES ($1) ON CONFLICT DO NOTHING', [delivery.id]);
  },
});
