import type { Pool } from '../connection.ts';
import { prepare, withPublished } from '../relay/prepare.ts';
import type { PublishMessages } from '../sources/parked.ts';
import { createPollSource } from '../sources/poll.ts';
import type { Call } from './call.ts';

/** Publishes as the relay does: under its name, with all acknowledgements, to Kafka. */
export async function publishing<T>(call: Call, work: (publish: PublishMessages) => Promise<T>): Promise<T> {
  const name = call.required('name');
  const bootstrap = call.required('brokers');
  // Only here, since most commands need no broker.
  const { kafkaSecurity, kafkaTransport } = await import('../transports/kafka.ts');
  const maxRecordBytes = call.number('max-record-bytes', { min: 1_000, max: 1_000_000_000 });
  const transport = kafkaTransport({
    bootstrap,
    clientId: 'twiceproof-cli',
    ...kafkaSecurity(),
    ...(maxRecordBytes && { maxRecordBytes }),
  });
  const publisher = transport.publisher();
  try {
    return await work(async (messages) => {
      const prepared = prepare(messages, name, undefined);
      const { records } = prepared;
      const outcomes = withPublished(prepared, records.length > 0 ? await publisher.publish(records) : []);
      return messages.map(({ id }) => outcomes.get(id)!);
    });
  } finally {
    await transport.close();
  }
}

/** What a relay would refuse to publish from, a command refuses too: a standby, or a copy in another cluster. */
export async function requireOwnCluster(pool: Pool, schema: string | undefined): Promise<void> {
  await createPollSource({ pool, ...(schema !== undefined && { schema }) }).check();
}
