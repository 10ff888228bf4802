/** Save, then publish, without an outbox. (Its rows are written all the same, so that the judge knows what was meant.) */
import { runOrders } from '../orders.ts';

await runOrders({
  name: 'saved-then-published',
  tables: 'CREATE TABLE IF NOT EXISTS keys (key text PRIMARY KEY, status int, body text);',
  answer: async (asked, { inTransaction, work, publish, point }) => {
    const { answer, event } = await inTransaction(async (client) => {
      const claimed = await client.query('INSERT INTO keys (key) VALUES ($1) ON CONFLICT DO NOTHING', [asked.key]);
      if (!claimed.rowCount) {
        const { rows } = await client.query<{ status: number; body: string }>(
          'SELECT status, body FROM keys WHERE key = $1',
          [asked.key],
        );
        return { answer: rows[0]!, event: undefined };
      }
      const done = await work(client, asked);
      await client.query('UPDATE keys SET status = $2, body = $3 WHERE key = $1', [
        asked.key,
        done.answer.status,
        done.answer.body,
      ]);
      return done;
    });
    await point('recipe:committed');
    if (event) await publish(event);
    return answer;
  },
});
