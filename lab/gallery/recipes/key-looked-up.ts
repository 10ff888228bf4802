/** The key is looked up, and written with the order when it is not there: two can look at the same time. */
import { runOrders } from '../orders.ts';

await runOrders({
  name: 'key-looked-up',
  tables:
    'CREATE TABLE IF NOT EXISTS keys (key text, status int, body text); CREATE INDEX IF NOT EXISTS by_key ON keys (key);',
  answer: async (asked, { inTransaction, work, point }) =>
    inTransaction(async (client) => {
      const { rows } = await client.query<{ status: number; body: string }>(
        'SELECT status, body FROM keys WHERE key = $1',
        [asked.key],
      );
      if (rows[0]) return rows[0];
      await point('recipe:checked');
      const { answer } = await work(client, asked);
      await client.query('INSERT INTO keys VALUES ($1, $2, $3)', [asked.key, answer.status, answer.body]);
      return answer;
    }),
});
