/** The ceiling of a consumer: reads a topic with the same client, and throws everything away. There is no database. */
import { Consumer } from '@platformatic/kafka';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';

const flags = {
  brokers: { type: 'string', env: 'KAFKA_BROKERS', help: 'where the topic is' },
  topic: { type: 'string', default: 'order.events', help: 'from its beginning' },
  group: { type: 'string', default: 'discard', help: 'of consumers' },
} as const satisfies FlagSpecs;

const reportEveryMs = 50;

await main({ name: 'discard', summary: 'Consumes a topic and does nothing with it.', flags, run });

async function run({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const consumer = new Consumer({
    clientId: 'discard',
    groupId: given.group,
    bootstrapBrokers: (given.brokers ?? '').split(','),
    autocommit: false,
  });
  // Fetches as large as those of the transport.
  const stream = await consumer.consume({
    topics: [given.topic],
    mode: 'earliest',
    maxWaitTime: 100,
    maxBytes: 8 * 1024 * 1024,
    highWaterMark: 10_000,
  });
  signal.addEventListener('abort', () => {
    stream.destroy();
  });
  output.ready({ pid: process.pid });
  let consumed = 0;
  const timer = setInterval(() => output.emit({ consumed }), reportEveryMs);
  try {
    for await (const { value } of stream) consumed += value.length > 0 ? 1 : 0;
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    clearInterval(timer);
    await consumer.close(true);
  }
  return EXIT.ok;
}
