/**
 * A published peer: pg-transactional-outbox with its polling or its replication listener, tuned in good faith. It
 * handles each message in a transaction of its own, and that cannot be configured away; all else is set in its favour:
 *
 * - the protections against poisonous messages and too many attempts are off, as it recommends for an outbox, and so
 *   is the clean-up;
 * - messages may be handled in parallel and in any order, though the relay keeps the order of each key;
 * - messages that are handled at once are published in one batch;
 * - no commit waits for the disk;
 * - a poll asks for a whole batch when most of the last one is done, instead of for each message that is done: every poll
 *   sorts all that is unpublished.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import {
  createReplicationSemaphoreConcurrencyController,
  DatabaseSetup,
  getDisabledLogger,
  initializePollingMessageListener,
  initializeReplicationMessageListener,
  type GeneralMessageHandler,
} from 'pg-transactional-outbox';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';
import { createBatcher, createSender, toMessage } from './producer.ts';

const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'where the outbox is' },
  brokers: { type: 'string', env: 'KAFKA_BROKERS', help: 'where to publish' },
  topic: { type: 'string', default: 'events', help: 'with three partitions' },
  listener: { type: 'choice', choices: ['polling', 'replication'], default: 'polling', help: 'how it learns of rows' },
  slot: { type: 'string', default: 'peer', help: 'of the replication listener' },
  batch: { type: 'integer', default: 200, min: 1, max: 10_000, help: 'messages under way at once' },
  connections: { type: 'integer', default: 20, min: 1, max: 100, help: 'of the transactions that handle messages' },
  'poll-interval-ms': { type: 'integer', default: 20, min: 1, max: 60_000, help: 'how often to look when idle' },
} as const satisfies FlagSpecs;

type Given = Context<typeof flags>['flags'];

await main({
  name: 'peer',
  summary: 'pg-transactional-outbox, publishing to Kafka.',
  commands: { prepare: 'make its table', slot: 'make its replication slot', run: 'publish until told to stop' },
  flags,
  run: async (context) => {
    if (context.command === 'prepare') return execute(context.flags, tableSql);
    if (context.command === 'slot') return execute(context.flags, slotSql);
    return relay(context);
  },
});

function setup({ slot }: Given) {
  return {
    outboxOrInbox: 'outbox' as const,
    database: 'postgres',
    schema: 'public',
    table: 'outbox',
    listenerRole: 'postgres',
    nextMessagesName: 'next_outbox_messages',
    publication: 'peer',
    replicationSlot: slot,
  };
}

function tableSql(given: Given): string[] {
  const config = setup(given);
  return [
    DatabaseSetup.dropAndCreateTable(config),
    DatabaseSetup.createPollingFunction(config),
    DatabaseSetup.setupPollingIndexes(config),
    DatabaseSetup.setupReplicationCore(config),
  ];
}

function slotSql(given: Given): string[] {
  return [DatabaseSetup.setupReplicationSlot(setup(given))];
}

async function execute(given: Given, sql: (given: Given) => string[]): Promise<number> {
  const client = new pg.Client({ connectionString: given['database-url'] });
  await client.connect();
  // One by one, since a slot cannot be made in a transaction that has written.
  for (const text of sql(given)) {
    for (const statement of text.includes('replication_slot') ? text.split(';') : [text]) await client.query(statement);
  }
  await client.end();
  return EXIT.ok;
}

async function relay({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const sender = createSender(given.brokers ?? '');
  const [stop] = listen(given, handler(given.topic, createBatcher(sender)));
  output.ready({ pid: process.pid });
  while (!signal.aborted) await delay(1_000, undefined, { signal }).catch(() => {});
  await stop();
  await sender.close();
  return EXIT.ok;
}

function listen(given: Given, messageHandler: GeneralMessageHandler): [() => Promise<void>] {
  const connection = {
    connectionString: given['database-url'] ?? '',
    application_name: 'peer',
    options: '-c synchronous_commit=off',
  };
  const config = {
    outboxOrInbox: 'outbox' as const,
    dbListenerConfig: connection,
    dbHandlerConfig: { ...connection, max: given.connections },
  };
  const settings = {
    dbSchema: 'public',
    dbTable: 'outbox',
    enableMaxAttemptsProtection: false,
    enablePoisonousMessageProtection: false,
    messageCleanupIntervalInMs: 0,
  };
  const { nextMessagesName, publication, replicationSlot } = setup(given);
  if (given.listener === 'replication') {
    return initializeReplicationMessageListener(
      { ...config, settings: { ...settings, dbPublication: publication, dbReplicationSlot: replicationSlot } },
      messageHandler,
      getDisabledLogger(),
      { concurrencyStrategy: createReplicationSemaphoreConcurrencyController(given.batch) },
    );
  }
  const polling = {
    nextMessagesFunctionName: nextMessagesName,
    nextMessagesBatchSize: given.batch,
    nextMessagesPollingIntervalInMs: given['poll-interval-ms'],
  };
  return initializePollingMessageListener(
    { ...config, settings: { ...settings, ...polling } },
    messageHandler,
    getDisabledLogger(),
    { batchSizeStrategy: batchWhenMostIsDone(given.batch) },
  );
}

/** Its loop asks again and again how many may be under way, and polls for the difference. */
function batchWhenMostIsDone(batch: number): (underWay: number) => Promise<number> {
  return async (underWay) => {
    if (underWay <= batch / 4) return batch;
    await delay(1);
    return 0;
  };
}

function handler(
  topic: string,
  publish: (message: ReturnType<typeof toMessage>) => Promise<void>,
): GeneralMessageHandler {
  return {
    handle: async ({ id, aggregateId, messageType, payload, metadata, createdAt }) =>
      publish(
        toMessage({
          topic,
          key: aggregateId,
          id,
          type: messageType,
          value: Buffer.from(JSON.stringify(payload)),
          createdAt,
          headers: (metadata ?? {}) as Record<string, string>,
        }),
      ),
  };
}
