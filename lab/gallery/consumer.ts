/** A consumer of order events, but for what it does with each of them: that is the recipe. */
import { Consumer, type Message } from '@platformatic/kafka';
import type pg from 'pg';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';
import { inTransaction, openDatabase, type Database } from './database.ts';
import { openPoints, type Point } from './point.ts';

export interface Delivery {
  /** The message's own id. */
  id: string;
  /** Of the record. */
  key: string;
  partition: number;
  offset: bigint;
  version: number;
  /** Of a new order only. */
  amountCents: number | undefined;
}

export interface Hands {
  pool: pg.Pool;
  point: Point;
  /** The effect: a charge if the order is new, and a line in a table that is only ever added to. */
  charge(database: Database, delivery: Delivery): Promise<void>;
  inTransaction<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T>;
}

export interface ConsumerRecipe {
  name: string;
  /** Besides charges and effects. */
  tables?: string;
  handle(delivery: Delivery, hands: Hands): Promise<void>;
  /** When the broker is told: before a message is handled, after it, or whenever one of several is done. Defaults to `after`. */
  settle?: 'before' | 'after' | 'whichever';
  /** How often it is told, where that is `after`. Defaults to 200. */
  settleEveryMs?: number;
}

const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'where charges are' },
  brokers: { type: 'string', env: 'KAFKA_BROKERS', help: 'where the topic is' },
  'dup-rate': { type: 'number', default: 0, min: 0, max: 1, help: 'share of messages that are delivered again' },
  seed: { type: 'integer', default: 1, min: 0, max: 4_294_967_295, help: 'of those' },
  'no-unique-charge': { type: 'boolean', help: 'there is never such a constraint here' },
  workers: { type: 'integer', default: 1, min: 1, max: 64, help: 'not used' },
  'admin-port': { type: 'integer', default: 0, min: 0, max: 65_535, help: 'not used' },
  'grace-ms': { type: 'integer', default: 0, min: 0, max: 600_000, help: 'not used' },
} as const satisfies FlagSpecs;

const tables = `
  CREATE TABLE IF NOT EXISTS charges (
    charge_id uuid PRIMARY KEY DEFAULT gen_random_uuid(), order_id uuid NOT NULL, amount_cents bigint NOT NULL);
  CREATE TABLE IF NOT EXISTS effects (
    id bigint GENERATED ALWAYS AS IDENTITY, consumer text NOT NULL, msg_id uuid NOT NULL, order_id uuid NOT NULL,
    version int NOT NULL);`;

/** How many are under way at once, where the order does not matter to the recipe. */
const workers = 16;
/** A group without a member is given to others after 6 s. */
const silenceMs = 9_000;
/** So many messages later a message comes again that was chosen to. */
const laterBy = 200;

export async function runConsumer(recipe: ConsumerRecipe): Promise<void> {
  await main({
    name: recipe.name,
    summary: `A recipe of the gallery: ${recipe.name}.`,
    flags,
    run: async (context) => consume(recipe, context),
  });
}

async function consume(
  recipe: ConsumerRecipe,
  { flags: given, output, signal }: Context<typeof flags>,
): Promise<number> {
  const pool = await openDatabase(given['database-url'], `${tables}\n${recipe.tables ?? ''}`);
  const point = openPoints(process.env['TWICEPROOF_POINTS']);
  const hands: Hands = { pool, point, charge, inTransaction: async (work) => inTransaction(pool, work) };
  const consumer = new Consumer({
    clientId: recipe.name,
    groupId: 'payments',
    bootstrapBrokers: (given.brokers ?? '').split(','),
    autocommit: false,
    sessionTimeout: 6_000,
    rebalanceTimeout: 10_000,
    heartbeatInterval: 1_500,
  });
  // A consumer of this client that has lost its group says so, and comes to no more messages: another process does.
  for (const event of ['error', 'consumer:heartbeat:stalled'] as const) consumer.on(event, crash);
  const assigned = (): void => {
    point('consumer:assigned').catch(() => {});
  };
  consumer.on('consumer:group:join', assigned);
  const stream = await consumer.consume({
    topics: ['order.events'],
    mode: 'committed',
    fallbackMode: 'earliest',
    maxWaitTime: 100,
  });
  signal.addEventListener('abort', () => {
    stream.destroy();
  });
  output.ready({ pid: process.pid });
  const again = createRedelivery(given['dup-rate'], given.seed);
  // Under load something comes all the time; who hears nothing has been forgotten.
  let heardAt = performance.now();
  setInterval(() => {
    if (performance.now() - heardAt > silenceMs) crash();
  }, 1_000).unref();
  const handle = async (delivery: Delivery): Promise<void> => {
    heardAt = performance.now();
    await Promise.all(again(delivery).map(async (each) => recipe.handle(each, hands)));
  };
  try {
    await (recipe.settle === 'whichever' ? sideBySide(stream, handle) : oneByOne(stream, handle, recipe));
  } catch (error) {
    if (!signal.aborted) throw error;
  }
  await consumer.close(true);
  await pool.end();
  return EXIT.ok;
}

async function oneByOne(
  stream: AsyncIterable<Message>,
  handle: (delivery: Delivery) => Promise<void>,
  { settle = 'after', settleEveryMs = 200 }: ConsumerRecipe,
): Promise<void> {
  const done = new Map<number, Message>();
  let settledAt = performance.now();
  for await (const message of stream) {
    if (settle === 'before') await tell(message);
    await handle(deliveryOf(message));
    done.set(message.partition, message);
    if (settle === 'before' || performance.now() - settledAt < settleEveryMs) continue;
    settledAt = performance.now();
    for (const last of done.values()) await tell(last);
    done.clear();
  }
}

/** Who may not commit any more is no member of the group any more. */
async function tell(message: Message): Promise<void> {
  await Promise.resolve(message.commit()).catch(crash);
}

function crash(): never {
  process.exit(1);
}

async function sideBySide(
  stream: AsyncIterable<Message>,
  handle: (delivery: Delivery) => Promise<void>,
): Promise<void> {
  const highest = new Map<number, bigint>();
  const underWay = new Set<Promise<void>>();
  // One order's events after each other: it is not this that shall break.
  const lastOf = new Map<string, Promise<void>>();
  for await (const message of stream) {
    const key = message.key.toString();
    const before = lastOf.get(key);
    const work = (async () => {
      await before;
      await handle(deliveryOf(message));
      if (message.offset <= (highest.get(message.partition) ?? -1n)) return;
      highest.set(message.partition, message.offset);
      await tell(message);
    })();
    underWay.add(work);
    lastOf.set(key, work);
    work.then(
      () => {
        underWay.delete(work);
        if (lastOf.get(key) === work) lastOf.delete(key);
      },
      () => {},
    );
    if (underWay.size >= workers) await Promise.race(underWay);
  }
}

async function charge(database: Database, { id, key, version, amountCents }: Delivery): Promise<void> {
  if (amountCents !== undefined) {
    await database.query('INSERT INTO charges (order_id, amount_cents) VALUES ($1, $2)', [key, amountCents]);
  }
  await database.query("INSERT INTO effects (consumer, msg_id, order_id, version) VALUES ('payments', $1, $2, $3)", [
    id,
    key,
    version,
  ]);
}

function deliveryOf({ key, value, headers, partition, offset }: Message): Delivery {
  const id = [...headers].find(([name]) => String(name) === 'ce_id')?.[1]?.toString() ?? '';
  const { version, amount_cents } = JSON.parse(value.toString()) as { version: number; amount_cents?: number };
  return { id, key: key.toString(), partition, offset, version, amountCents: amount_cents };
}

/** Some come twice at the same moment, as in two batches, and some again much later, as when somebody seeks back. */
function createRedelivery(rate: number, seed: number): (delivery: Delivery) => Delivery[] {
  const later: { delivery: Delivery; at: number }[] = [];
  let count = 0;
  let state = seed;
  const random = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
  return (delivery) => {
    count += 1;
    const due = later[0] && later[0].at <= count ? [later.shift()!.delivery] : [];
    const drawn = random();
    if (drawn < rate / 2) return [delivery, delivery, ...due];
    if (drawn < rate) later.push({ delivery, at: count + laterBy });
    return [delivery, ...due];
  };
}
