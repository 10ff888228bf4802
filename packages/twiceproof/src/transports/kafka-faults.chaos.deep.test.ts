import { after } from 'node:test';
import { Admin } from '@platformatic/kafka';
import { startKafka } from '@twiceproof/infra/kafka';
import { testTransport } from '../conformance/transport.ts';
import { kafkaTransport } from './kafka.ts';

// Three brokers of its own, because they are killed and frozen.
const cluster = await startKafka({ brokers: 3 });
const admin = new Admin({
  clientId: 'chaos',
  bootstrapBrokers: cluster.bootstrap.split(','),
  retries: 20,
  retryDelay: 250,
});
after(async () => {
  await admin.close();
  await cluster.close();
});

let names = 0;

testTransport(
  'kafka',
  {
    async createTopic({ partitions }) {
      const topic = `chaos-${(names += 1)}`;
      await admin.createTopics({ topics: [topic], partitions, replicas: 3 });
      return topic;
    },
    group: () => `group-${(names += 1)}`,
    transport: (options) => kafkaTransport({ bootstrap: cluster.bootstrap, ...options }),
    faults: {
      killBroker: () => cluster.brokers[0]!.kill(),
      startBroker: () => cluster.brokers[0]!.start(),
      freeze: async () => cluster.brokers.forEach((broker) => broker.freeze()),
      thaw: async () => cluster.brokers.forEach((broker) => broker.thaw()),
    },
  },
  'faults',
);
