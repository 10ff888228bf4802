/** A topic as the relay of Orders leaves it, but filled beforehand: orders that were created, a share of them again. */
import { ProduceAcks, Producer, type MessageToProduce } from '@platformatic/kafka';
import { randomFrom } from '../../load/random.ts';
import type { World } from '../relay/world.ts';
import { newIds } from './statement.ts';

export const partitions = 3;

export interface FilledTopic {
  name: string;
  messages: number;
  /** How many of them are different. */
  orders: number;
  ids: readonly string[];
}

const batch = 1_000;
/** Half of the repetitions come soon, in the same transaction or the next; the others may be of any age. */
const soonOrders = 500;

/** Which order each message is of. One that came before is a duplicate. */
export function planTopic(
  messages: number,
  duplicatesPercent: number,
  seed: number,
): { plan: number[]; orders: number } {
  const random = randomFrom(seed);
  let orders = 0;
  const plan = Array.from({ length: messages }, () => {
    if (orders === 0 || random() >= duplicatesPercent / 100) return orders++;
    const within = random() < 0.5 ? Math.min(soonOrders, orders) : orders;
    return orders - 1 - Math.floor(random() * within);
  });
  return { plan, orders };
}

export async function fillTopic(
  world: World,
  { messages, duplicatesPercent, signal }: { messages: number; duplicatesPercent: number; signal: AbortSignal },
): Promise<FilledTopic> {
  const { plan, orders } = planTopic(messages, duplicatesPercent, world.seed + duplicatesPercent);
  const name = await world.topic();
  const ids = newIds(orders, 7);
  const orderIds = newIds(orders, 4);
  const createdAt = new Date().toISOString();
  const producer = createProducer(world.kafka.bootstrap);
  try {
    for (let from = 0; from < messages; from += batch) {
      signal.throwIfAborted();
      const part = plan
        .slice(from, from + batch)
        .map((order) => toMessage({ topic: name, id: ids[order]!, orderId: orderIds[order]!, order, createdAt }));
      await producer.send({ messages: part, acks: ProduceAcks.ALL, autocreateTopics: false });
    }
  } finally {
    await producer.close();
  }
  return { name, messages, orders, ids };
}

function createProducer(bootstrap: string): Producer {
  const producer = new Producer({
    clientId: 'bench',
    bootstrapBrokers: bootstrap.split(','),
    autocreateTopics: false,
    idempotent: true,
    retries: 10,
    retryDelay: 250,
  });
  producer.on('error', () => {}); // Every failure also comes back from its call.
  return producer;
}

interface Created {
  topic: string;
  id: string;
  orderId: string;
  order: number;
  createdAt: string;
}

/** As docs/wire.md has it, with the payload that Orders writes. */
function toMessage({ topic, id, orderId, order, createdAt }: Created): MessageToProduce {
  const event = { order_id: orderId, account_id: order % 1_000, amount_cents: 100 + (order % 900) };
  const headers = {
    ce_specversion: '1.0',
    ce_id: id,
    ce_type: 'order.created',
    ce_source: '/orders',
    ce_subject: orderId,
    ce_time: createdAt,
    traceparent: `00-${order.toString(16).padStart(32, '0')}-b7ad6b7169203331-01`,
  };
  return {
    topic,
    // An order is always in the same one.
    partition: order % partitions,
    key: Buffer.from(orderId),
    value: Buffer.from(JSON.stringify({ ...event, status: 'created', version: 1 })),
    headers: new Map(Object.entries(headers).map(([name, text]) => [Buffer.from(name), Buffer.from(text)])),
  };
}
