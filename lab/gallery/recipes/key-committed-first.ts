/** The key is claimed in a transaction of its own; a repetition is told that all is well. */
import { runOrders } from '../orders.ts';

await runOrders({
  name: 'key-committed-first',
  tables: 'CREATE TABLE IF NOT EXISTS keys (key text PRIMARY KEY, status int, body text);',
  answer: async (asked, { pool, inTransaction, work, point }) => {
    const { rowCount } = await pool.query('INSERT INTO keys (key) VALUES ($1) ON CONFLICT DO NOTHING', [asked.key]);
    if (!rowCount) {
      const { rows } = await pool.query<{ status: number | null; body: string | null }>(
        'SELECT status, body FROM keys WHERE key = $1',
        [asked.key],
      );
      return { status: rows[0]?.status ?? 200, body: rows[0]?.body ?? '{"status":"already processed"}' };
    }
    await point('recipe:claimed');
    const { answer } = await inTransaction(async (client) => work(client, asked));
    await pool.query('UPDATE keys SET status = $2, body = $3 WHERE key = $1', [asked.key, answer.status, answer.body]);
    return answer;
  },
});
