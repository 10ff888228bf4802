/** No inbox at all: the broker is told after the commit, so nothing is lost, and "the producer is idempotent". */
import { runConsumer } from '../consumer.ts';

await runConsumer({
  name: 'nothing-remembered',
  handle: async (delivery, { inTransaction, charge, point }) => {
    await inTransaction(async (client) => charge(client, delivery));
    await point('recipe:charged');
  },
});
