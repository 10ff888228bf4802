/** How every baseline publishes: the client of the relay, set as the relay sets it, with one batch in flight. */
import { ProduceAcks, Producer, type MessageToProduce } from '@platformatic/kafka';

export type OutgoingMessage = MessageToProduce;

/** What is on the wire is the same for all: as CloudEvents, like that of the relay. */
export interface Event {
  topic: string;
  key: string;
  id: string;
  type: string;
  value: Buffer;
  createdAt: string;
  headers: Readonly<Record<string, string>>;
}

export const partitions = 3;

export function toMessage({ topic, key, id, type, value, createdAt, headers }: Event): OutgoingMessage {
  const texts = {
    ...headers,
    ce_specversion: '1.0',
    ce_id: id,
    ce_type: type,
    ce_source: '/orders',
    ce_subject: key,
    ce_time: createdAt,
  };
  const keyBytes = Buffer.from(key);
  return {
    topic,
    partition: partitionOf(keyBytes),
    key: keyBytes,
    value,
    headers: new Map(Object.entries(texts).map(([name, text]) => [Buffer.from(name), Buffer.from(text)])),
  };
}

/** Any hash does that gives a key the same partition each time (this is FNV-1a). */
function partitionOf(key: Buffer): number {
  let hash = 0x811c9dc5;
  for (const byte of key) hash = Math.imul(hash ^ byte, 0x01000193);
  return (hash >>> 0) % partitions;
}

export interface Sender {
  send(messages: OutgoingMessage[]): Promise<void>;
  close(): Promise<void>;
}

export function createSender(brokers: string): Sender {
  const producer = new Producer({
    clientId: 'baseline',
    bootstrapBrokers: brokers.split(','),
    connectTimeout: 3_000,
    retryDelay: 250,
    autocreateTopics: false,
    idempotent: true,
    retries: 10,
    timeout: 10_000,
    requestTimeout: 12_000,
  });
  producer.on('error', () => {}); // Every failure also comes back from its call.
  return {
    send: async (messages) => {
      await producer.send({ messages, acks: ProduceAcks.ALL, autocreateTopics: false });
    },
    close: async () => producer.close(),
  };
}

/** What is added while a batch is under way goes out together when that has come back. */
export function createBatcher(sender: Sender): (message: OutgoingMessage) => Promise<void> {
  let waiting: { message: OutgoingMessage; done: PromiseWithResolvers<void> }[] = [];
  let running = false;

  async function drain(): Promise<void> {
    running = true;
    while (waiting.length > 0) {
      const batch = waiting;
      waiting = [];
      try {
        await sender.send(batch.map(({ message }) => message));
        for (const { done } of batch) done.resolve();
      } catch (error) {
        for (const { done } of batch) done.reject(error);
      }
    }
    running = false;
  }

  return async (message) => {
    const done = Promise.withResolvers<void>();
    waiting.push({ message, done });
    // After this turn, in which others may be added.
    if (!running) {
      running = true;
      setImmediate(() => {
        drain().catch(() => {}); // It fails for nobody but those whose message it had.
      });
    }
    return done.promise;
  };
}
