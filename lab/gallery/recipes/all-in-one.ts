/** The control of the edge: key, order, event and answer in one transaction; INSERT decides. It must not be convicted. */
import { runOrders } from '../orders.ts';

await runOrders({
  name: 'all-in-one',
  tables: 'CREATE TABLE IF NOT EXISTS keys (key text PRIMARY KEY, status int, body text);',
  answer: async (asked, { inTransaction, work, point }) =>
    inTransaction(async (client) => {
      // It waits for whoever has the key under way, and then sees what became of it.
      const { rowCount } = await client.query('INSERT INTO keys (key) VALUES ($1) ON CONFLICT DO NOTHING', [asked.key]);
      await point('recipe:claimed');
      if (!rowCount) {
        const { rows } = await client.query<{ status: number; body: string }>(
          'SELECT status, body FROM keys WHERE key = $1',
          [asked.key],
        );
        return rows[0]!;
      }
      const { answer } = await work(client, asked);
      await client.query('UPDATE keys SET status = $2, body = $3 WHERE key = $1', [
        asked.key,
        answer.status,
        answer.body,
      ]);
      return answer;
    }),
});
