/** A relay, but for how it finds and remembers what it has published: that is the recipe. It reads our own outbox. */
import { setTimeout as delay } from 'node:timers/promises';
import { ProduceAcks } from '@platformatic/kafka';
import pg from 'pg';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';
import { toMessage } from '../baselines/producer.ts';
import { inTransaction, openDatabase, type Database } from './database.ts';
import { openPoints, type Point } from './point.ts';
import { openProducer } from './producer.ts';

export interface Row {
  id: string;
  topic: string;
  aggregate_id: string;
  msg_id: string;
  event_type: string;
  payload: Buffer;
  headers: Record<string, string> | null;
  created_at: Date;
}

export interface RelayHands {
  pool: pg.Pool;
  point: Point;
  /** Answers when all in-sync replicas have them; or at once, with `acks: 'none'`. */
  send(rows: readonly Row[], options?: { acks: 'none' }): Promise<void>;
  inTransaction<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T>;
  /** A connection that hears what is notified on `outbox`. */
  listen(heard: (payload: string) => void): Promise<void>;
}

export interface RelayRecipe {
  name: string;
  tables?: string;
  /** One pass; answers how many it has published. */
  pass(hands: RelayHands): Promise<number>;
}

export const rowColumns = 'o.id, topic, aggregate_id, msg_id, event_type, payload, headers, created_at';

/** One relay at a time, so that a key's messages stay in order: what breaks then is something else. */
export async function oneAtATime(client: Database): Promise<void> {
  await client.query("SELECT pg_advisory_xact_lock(hashtextextended('recipe relay', 0))");
}

const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'where the outbox is' },
  brokers: { type: 'string', env: 'KAFKA_BROKERS', help: 'where to publish' },
  'poll-interval-ms': { type: 'integer', default: 25, min: 1, max: 60_000, help: 'how often to look when idle' },
  'publish-deadline-ms': { type: 'integer', default: 0, min: 0, max: 600_000, help: 'not used' },
  'idle-timeout-ms': { type: 'integer', default: 0, min: 0, max: 600_000, help: 'not used' },
  'watchdog-ms': { type: 'integer', default: 0, min: 0, max: 600_000, help: 'not used' },
  lanes: { type: 'integer', default: 1, min: 1, max: 64, help: 'not used' },
  'admin-port': { type: 'integer', default: 0, min: 0, max: 65_535, help: 'not used' },
  'grace-ms': { type: 'integer', default: 0, min: 0, max: 600_000, help: 'not used' },
} as const satisfies FlagSpecs;

export async function runRelay(recipe: RelayRecipe): Promise<void> {
  await main({
    name: recipe.name,
    summary: `A recipe of the gallery: ${recipe.name}.`,
    flags,
    run: async (context) => publish(recipe, context),
  });
}

async function publish(recipe: RelayRecipe, { flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const pool = await openDatabase(given['database-url'], recipe.tables ?? 'SELECT 1');
  const producer = openProducer(recipe.name, given.brokers);
  const hands: RelayHands = {
    pool,
    point: openPoints(process.env['TWICEPROOF_POINTS']),
    inTransaction: async (work) => inTransaction(pool, work),
    send: async (rows, options) => {
      const messages = rows.map((row) =>
        toMessage({
          topic: row.topic,
          key: row.aggregate_id,
          id: row.msg_id,
          type: row.event_type,
          value: row.payload,
          createdAt: row.created_at.toISOString(),
          headers: row.headers ?? {},
        }),
      );
      await producer.send(messages, options?.acks === 'none' ? ProduceAcks.NO_RESPONSE : ProduceAcks.ALL);
    },
    listen: async (heard) => {
      const client = new pg.Client({ connectionString: given['database-url'] });
      await client.connect();
      client.on('notification', ({ payload }) => heard(payload ?? ''));
      // It cannot listen any more: crash, and begin anew.
      client.on('error', () => process.exit(1));
      await client.query('LISTEN outbox');
      signal.addEventListener('abort', () => {
        client.end().catch(() => {});
      });
    },
  };
  output.ready({ pid: process.pid });
  while (!signal.aborted) {
    const published = await recipe.pass(hands);
    if (published === 0) await delay(given['poll-interval-ms'], undefined, { signal }).catch(() => {});
  }
  await producer.close();
  await pool.end();
  return EXIT.ok;
}
