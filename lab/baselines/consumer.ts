/**
 * The textbook consumer: a transaction for each message, and a table of ids that were seen. With `--transactions=two` it is
 * the recipe that breaks: charge and inbox are committed apart, in either order. A death between the two then loses a
 * charge (inbox first), or makes it twice (charge first). `--wait-at` lets an experiment kill it exactly there.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Consumer, type Message } from '@platformatic/kafka';
import pg from 'pg';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';

const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'where charges and inbox are' },
  brokers: { type: 'string', env: 'KAFKA_BROKERS', help: 'where the topic is' },
  topic: { type: 'string', default: 'order.events', help: 'from its beginning, or where the group was' },
  group: { type: 'string', default: 'textbook', help: 'of consumers' },
  transactions: { type: 'choice', choices: ['one', 'two'], default: 'one', help: 'for charge and inbox' },
  'effect-order': {
    type: 'choice',
    choices: ['inbox-first', 'charge-first'],
    default: 'inbox-first',
    help: 'which of the two is written first',
  },
  'wait-at': {
    type: 'integer',
    default: 0,
    min: 0,
    max: 1_000_000,
    help: 'stand still between the writes of this one',
  },
} as const satisfies FlagSpecs;

type Given = Context<typeof flags>['flags'];

const seen = { name: 'seen', text: 'SELECT FROM textbook_inbox WHERE msg_id = $1' };
const accept = { name: 'accept', text: 'INSERT INTO textbook_inbox VALUES ($1) ON CONFLICT DO NOTHING' };
const charge = { name: 'charge', text: 'INSERT INTO textbook_charges (order_id, amount_cents) VALUES ($1, $2)' };
const commitOffsetsEveryMs = 200;
const reportEveryMs = 50;

await main({
  name: 'textbook-consumer',
  summary: 'Charges orders, a transaction for each message.',
  commands: { prepare: 'make its tables', run: 'consume until told to stop' },
  flags,
  run: async (context) => (context.command === 'prepare' ? prepare(context) : consume(context)),
});

async function prepare({ flags: given }: Context<typeof flags>): Promise<number> {
  const client = new pg.Client({ connectionString: given['database-url'] });
  await client.connect();
  await client.query(`
    CREATE TABLE textbook_inbox (msg_id uuid PRIMARY KEY);
    CREATE TABLE textbook_charges (
      charge_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      order_id text NOT NULL,
      amount_cents bigint NOT NULL
    )`);
  await client.end();
  return EXIT.ok;
}

async function consume({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const client = new pg.Client({ connectionString: given['database-url'], application_name: 'textbook-consumer' });
  await client.connect();
  const consumer = new Consumer({
    clientId: 'textbook-consumer',
    groupId: given.group,
    bootstrapBrokers: (given.brokers ?? '').split(','),
    autocommit: false,
    sessionTimeout: 6_000,
    rebalanceTimeout: 10_000,
    heartbeatInterval: 1_500,
  });
  const stream = await consumer.consume({
    topics: [given.topic],
    mode: 'committed',
    fallbackMode: 'earliest',
    maxWaitTime: 100,
    // Not the client's 50 MiB: it reads such an answer piece by piece, each time from the first, and is away for many seconds.
    maxBytes: 1024 * 1024,
  });
  signal.addEventListener('abort', () => {
    stream.destroy();
  });
  output.ready({ pid: process.pid });
  let count = 0;
  let consumed = 0;
  let committedAt = performance.now();
  const timer = setInterval(() => output.emit({ consumed }), reportEveryMs);
  try {
    for await (const message of stream) {
      await charged(client, message, given, async () => {
        if ((count += 1) !== given['wait-at']) return;
        output.say(JSON.stringify({ between: true }));
        await delay(3_600_000, undefined, { signal });
      });
      consumed += 1;
      // Not for each message: that would cost more than all the rest of it.
      if (performance.now() - committedAt < commitOffsetsEveryMs) continue;
      committedAt = performance.now();
      await message.commit();
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    clearInterval(timer);
    await consumer.close(true);
    await client.end();
  }
  return EXIT.ok;
}

/** `between` is called between the two writes. */
async function charged(
  client: pg.Client,
  { key, value, headers }: Message,
  { transactions, 'effect-order': order }: Given,
  between: () => Promise<void>,
): Promise<void> {
  const id = [...headers].find(([name]) => String(name) === 'ce_id')?.[1]?.toString();
  const { amount_cents } = JSON.parse(value.toString()) as { amount_cents?: number };
  const isSplit = transactions === 'two';
  await client.query('BEGIN');
  const writes = {
    inbox: async () => (await client.query({ ...accept, values: [id] })).rowCount === 1,
    charge: async () => {
      await client.query({ ...charge, values: [key.toString(), amount_cents ?? 0] });
      return true;
    },
  };
  const [first, second] = order === 'inbox-first' ? [writes.inbox, writes.charge] : [writes.charge, writes.inbox];
  const isNew = order === 'inbox-first' || (await client.query({ ...seen, values: [id] })).rowCount === 0;
  if (isNew && (await first())) {
    if (isSplit) await client.query('COMMIT; BEGIN');
    await between();
    await second();
  }
  await client.query('COMMIT');
}
