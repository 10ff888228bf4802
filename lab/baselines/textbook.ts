/**
 * The textbook relay: rows with `published_at IS NULL` are locked, published, and updated one by one. Tuned in good
 * faith: a partial index of what is unpublished, prepared statements, one UPDATE for the batch, and no wait for the disk
 * at its commit, since what is lost there is published again.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';
import { createSender, toMessage, type Sender } from './producer.ts';

const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'where the outbox is' },
  brokers: { type: 'string', env: 'KAFKA_BROKERS', help: 'where to publish' },
  batch: { type: 'integer', default: 1_000, min: 1, max: 10_000, help: 'rows that are published together, at most' },
  'poll-interval-ms': { type: 'integer', default: 20, min: 1, max: 60_000, help: 'how often to look when idle' },
} as const satisfies FlagSpecs;

interface Row {
  id: string;
  topic: string;
  aggregate_id: string;
  msg_id: string;
  event_type: string;
  payload: Buffer;
  headers: Record<string, string>;
  created_at: Date;
}

const read = {
  name: 'read',
  text: `SELECT id, topic, aggregate_id, msg_id, event_type, payload, headers, created_at FROM outbox
         WHERE published_at IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED`,
};
const mark = { name: 'mark', text: 'UPDATE outbox SET published_at = now() WHERE id = ANY ($1::bigint[])' };

await main({
  name: 'textbook',
  summary: 'A relay that marks each row of the outbox as published.',
  commands: { prepare: 'make its table', run: 'publish until told to stop' },
  flags,
  run: async (context) => (context.command === 'prepare' ? prepare(context) : relay(context)),
});

async function prepare({ flags: given }: Context<typeof flags>): Promise<number> {
  const client = new pg.Client({ connectionString: given['database-url'] });
  await client.connect();
  await client.query(`
    CREATE TABLE outbox (
      id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      topic text NOT NULL,
      aggregate_id text NOT NULL,
      msg_id uuid NOT NULL,
      event_type text NOT NULL,
      payload bytea NOT NULL,
      headers json,
      created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      published_at timestamptz
    );
    CREATE INDEX outbox_unpublished ON outbox (id) WHERE published_at IS NULL`);
  await client.end();
  return EXIT.ok;
}

async function relay({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const client = new pg.Client({
    connectionString: given['database-url'],
    application_name: 'textbook',
    options: '-c synchronous_commit=off',
  });
  await client.connect();
  const sender = createSender(given.brokers ?? '');
  output.ready({ pid: process.pid });
  try {
    while (!signal.aborted) {
      const published = await pass(client, sender, given.batch);
      if (published > 0) continue;
      await delay(given['poll-interval-ms'], undefined, { signal }).catch(() => {});
    }
  } finally {
    await sender.close();
    await client.end();
  }
  return EXIT.ok;
}

async function pass(client: pg.Client, sender: Sender, batch: number): Promise<number> {
  await client.query('BEGIN');
  const { rows } = await client.query<Row>({ ...read, values: [batch] });
  if (rows.length > 0) {
    const messages = rows.map((row) =>
      toMessage({
        topic: row.topic,
        key: row.aggregate_id,
        id: row.msg_id,
        type: row.event_type,
        value: row.payload,
        createdAt: row.created_at.toISOString(),
        headers: row.headers,
      }),
    );
    await sender.send(messages);
    await client.query({ ...mark, values: [rows.map(({ id }) => id)] });
  }
  await client.query('COMMIT');
  return rows.length;
}
