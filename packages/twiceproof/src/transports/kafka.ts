import { withDefaults } from '../defaults.ts';
import { TwiceproofError } from '../errors.ts';
import { longestTimerMs } from '../within.ts';
import type { Publisher, Subscription, Transport } from '../transport.ts';
import { createClientFactory, type KafkaTransportOptions } from './kafka-client.ts';
import { createPublisher } from './kafka-publisher.ts';
import { subscribe } from './kafka-subscription.ts';
import { topicProblems, topicTimes } from './kafka-topics.ts';

export type { KafkaTransportOptions } from './kafka-client.ts';
export { kafkaSecurity, securityProblems } from './kafka-security.ts';

const defaults = {
  // Below that of the relay, so that it hears which of a batch were acknowledged, and does not give up all of it.
  publishDeadlineMs: 13_500,
  maxRecordBytes: 1_048_588,
};

/**
 * Kafka 2.8 or newer by @platformatic/kafka, with the settings under which it lost nothing: acks of
 * all in-sync replicas on every send, topics never made on the fly, the Java client's partitions,
 * the group's own position or the earliest, never the latest.
 */
export function kafkaTransport(options: KafkaTransportOptions): Transport {
  const clients = createClientFactory(options);
  const limits = withDefaults(defaults, options);
  if (!(limits.publishDeadlineMs > 0 && limits.publishDeadlineMs <= longestTimerMs)) {
    throw new TwiceproofError('TP_OPTION', `0 < publishDeadlineMs < 2^31 is needed, not ${limits.publishDeadlineMs}`);
  }
  const open = new Set<Publisher | Subscription>();
  let closed = false;

  /** Keeps it for `close()` until it is closed by itself. */
  function tracked<T extends Publisher | Subscription>(each: T): T {
    const { close } = each;
    each.close = async () => {
      open.delete(each);
      await close();
    };
    open.add(each);
    return each;
  }

  return {
    name: 'kafka',
    features: new Set(['positions', 'seek', 'pause', 'assignment', 'topics', 'times'] as const),
    publisher: () => tracked(createPublisher(clients, limits)),
    async subscribe(wanted) {
      const subscription = tracked(await subscribe(clients, wanted));
      if (closed) {
        await subscription.close();
        throw new TwiceproofError('TP_CLOSED', 'the transport was closed meanwhile');
      }
      return subscription;
    },
    topicProblems: async (topics, needs) => topicProblems(clients, topics, needs),
    topicTimes: async (topics) => topicTimes(clients, topics),
    async close() {
      closed = true;
      await Promise.all([...open].map((each) => each.close()));
    },
  };
}
