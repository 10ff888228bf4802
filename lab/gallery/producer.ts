/** How the recipes that publish do it: with retries, and with whatever acknowledgement each of them asks for. */
import { Producer, type ProduceAcks } from '@platformatic/kafka';
import type { toMessage } from '../baselines/producer.ts';
import { within } from '../supervisor/deadline.ts';

type Message = ReturnType<typeof toMessage>;

export interface RecipeProducer {
  send(messages: Message[], acks: (typeof ProduceAcks)[keyof typeof ProduceAcks]): Promise<void>;
  close(): Promise<void>;
}

/** Of a client that is stuck nothing is learnt: it counts as failed, and is not waited for. */
const deadlineMs = 8_000;

export function openProducer(name: string, brokers: string | undefined): RecipeProducer {
  const producer = new Producer({
    clientId: name,
    bootstrapBrokers: (brokers ?? '').split(','),
    connectTimeout: 3_000,
    timeout: 10_000,
    requestTimeout: 12_000,
    retries: 10,
    retryDelay: 250,
    autocreateTopics: false,
  });
  // Every failure also comes back from its call.
  producer.on('error', () => {});
  return {
    send: async (messages, acks) => {
      await within(deadlineMs, producer.send({ messages, acks }), () => 'the send has no answer');
    },
    close: async () => within(deadlineMs, producer.close(), () => 'the producer does not close'),
  };
}
