/** Everything at once: three brokers, Postgres, and one each of orders, relay and payments, for all rates. */
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { setPriority } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { kafkaAdmin } from '@twiceproof/infra/kafka-admin';
import { startOrders, type Orders } from '../children.ts';
import { startPayments, type ConsumerProgram } from '../inbox/programs.ts';
import { startRelay, type Program } from '../relay/programs.ts';
import { startWorld, type Database, type World } from '../relay/world.ts';
import { ageLog } from '../server.ts';

export interface Stage {
  world: World;
  orders: Orders;
  relay: Program;
  payments: ConsumerProgram;
  databases: { orders: Database; payments: Database };
  close(): Promise<void>;
}

/** To which orders publishes. */
export const topic = 'order.events';
/** Brokers that share two cores with everything else cost more for each batch than for its messages. */
const pollIntervalMs = 50;

/** Nobody waits for these, as clients do for orders and its database; on one machine they go behind. */
const lowerPriority = 19;

/**
 * A priority is a thread's; threads to come have that of who makes them. Where the kernel shares out the cores among sessions
 * first (see `../children.ts`), it is the session's that counts; each of these is one by itself.
 */
async function yieldToOthers(pid: number): Promise<void> {
  for (const thread of readdirSync(`/proc/${pid}/task`)) setPriority(Number(thread), lowerPriority);
  const ofSession = `/proc/${pid}/autogroup`;
  if (!existsSync(ofSession)) return;
  // Whoever is not root may do this ten times a second, all processes together.
  if (process.getuid?.() !== 0) await delay(110);
  writeFileSync(ofSession, String(lowerPriority));
}

export async function openStage(seed: number, signal: AbortSignal): Promise<Stage> {
  await using made = new AsyncDisposableStack();
  const world = await startWorld(seed, signal);
  made.defer(async () => world.close());
  const admin = kafkaAdmin(world.kafka.bootstrap);
  try {
    await admin.createTopic(topic, { partitions: 3 });
  } finally {
    await admin.close();
  }
  const newDatabase = async (): Promise<Database> => {
    const database = await world.database({ shape: 'ours', shards: 1 }, 0);
    made.defer(async () => database.client.end());
    return database;
  };
  const databases = { orders: await newDatabase(), payments: await newDatabase() };
  await ageLog(databases.orders.client);
  const orders = await startOrders(databases.orders.url, []);
  made.defer(orders.stop);
  const relay = await startRelay(
    { world, url: databases.orders.url, topic },
    { batch: 500, shards: 1, pollIntervalMs },
  );
  made.defer(relay.stop);
  const payments = await startPayments({ world, topic, group: 'bench-system' }, databases.payments, 'set');
  made.defer(payments.stop);
  for (const pid of [...world.kafka.brokers.map((broker) => broker.pid), relay.pid, payments.pid]) {
    await yieldToOthers(pid);
  }
  const undo = made.move();
  return { world, orders, relay, payments, databases, close: async () => undo.disposeAsync() };
}
