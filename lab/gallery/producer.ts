/** How the recipes that publish do it: with retries, and with whatever acknowledgement each of them asks for. */
import { Producer } from '@platformatic/kafka';

export function openProducer(name: string, brokers: string | undefined): Producer {
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
  return producer;
}
