/** A set of ids in the process: fast, and gone with it. */
import { runConsumer } from '../consumer.ts';

const seen = new Set<string>();

await runConsumer({
  name: 'ids-in-memory',
  handle: async (delivery, { inTransaction, charge, point }) => {
    if (seen.has(delivery.id)) return;
    seen.add(delivery.id);
    await inTransaction(async (client) => charge(client, delivery));
    await point('recipe:charged');
  },
});
