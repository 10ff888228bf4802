/** Answers by key in a map of the process: but there are two processes, and each ends some day. */
import { runOrders, type Answer } from '../orders.ts';

const answers = new Map<string, Promise<Answer>>();

await runOrders({
  name: 'keys-in-memory',
  answer: async (asked, { inTransaction, work, point }) => {
    const known = answers.get(asked.key);
    if (known) return known;
    const answered = inTransaction(async (client) => (await work(client, asked)).answer);
    answers.set(asked.key, answered);
    answered.catch(() => answers.delete(asked.key));
    await answered;
    await point('recipe:committed');
    return answered;
  },
});
