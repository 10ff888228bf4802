import { testTransport } from '../conformance/transport.ts';
import { createMemoryBroker } from './memory.ts';

const broker = createMemoryBroker();
let names = 0;

testTransport('memory', {
  async createTopic(options) {
    const topic = `topic-${(names += 1)}`;
    broker.createTopic(topic, options);
    return topic;
  },
  group: () => `group-${(names += 1)}`,
  transport: () => broker.transport(),
  async doomedMember({ group, topic }) {
    const transport = broker.transport();
    const subscription = await transport.subscribe({ group, topics: [topic] });
    await subscription.receive({ maxRecords: 500, waitMs: 1000 });
    return { kill: async () => transport.crash() };
  },
});
