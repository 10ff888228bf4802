/** Publish, then save: whoever dies between has announced what never was. */
import { runOrders } from '../orders.ts';

await runOrders({
  name: 'published-then-saved',
  tables: 'CREATE TABLE IF NOT EXISTS keys (key text PRIMARY KEY, status int, body text);',
  answer: async (asked, { inTransaction, work, publish, point }) =>
    inTransaction(async (client) => {
      const claimed = await client.query('INSERT INTO keys (key) VALUES ($1) ON CONFLICT DO NOTHING', [asked.key]);
      if (!claimed.rowCount) {
        const { rows } = await client.query<{ status: number; body: string }>(
          'SELECT status, body FROM keys WHERE key = $1',
          [asked.key],
        );
        return rows[0]!;
      }
      const { answer, event } = await work(client, asked);
      if (event) await publish(event);
      await point('recipe:published');
      await client.query('UPDATE keys SET status = $2, body = $3 WHERE key = $1', [
        asked.key,
        answer.status,
        answer.body,
      ]);
      return answer;
    }),
});
