import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool, PoolClient } from '../connection.ts';
import type { Message } from '../message.ts';
import { quotedSchema } from '../schema-name.ts';
import type { Source, SourcedMessage } from '../source.ts';
import { uuidv7 } from '../uuid.ts';
import type { OutboxUnderTest, ParkedMessage, SourceHarness, SourceUnderTest, WritingTransaction } from './source.ts';

export interface PostgresHarnessOptions {
  /** Connections that bear this name (`application_name`), so that those of one source can be told from all others. */
  openPool(name: string): Pool & { end(): Promise<void> };
  migrate(pool: Pool, options: { schema: string; shards: number }): Promise<unknown>;
  createSource(pool: Pool, schema: string): Source;
  holdsSeveral: boolean;
}

const patienceMs = 20_000;

/** An outbox in Postgres for each case, in a schema of its own. */
export function postgresHarness(options: PostgresHarnessOptions): SourceHarness {
  let names = 0;
  return {
    holdsSeveral: options.holdsSeveral,
    async createOutbox({ shards }) {
      const schema = `outbox_${(names += 1)}`;
      const pool = options.openPool(`writers of ${schema}`);
      await options.migrate(pool, { schema, shards });
      await query(pool, `CREATE TABLE "${schema}".aggregates (id text PRIMARY KEY, version int NOT NULL DEFAULT 1)`);
      return outboxIn(schema, pool, async () => openSource(options, schema, `source ${(names += 1)}`, pool));
    },
  };
}

function outboxIn(
  schemaName: string,
  pool: Pool & { end(): Promise<void> },
  open: () => Promise<SourceUnderTest>,
): OutboxUnderTest {
  const schema = quotedSchema(schemaName);
  return {
    begin: async () => begin(await pool.connect(), schema),
    openSource: open,
    async parked() {
      const rows = await query(pool, `SELECT msg_id, payload, reason FROM ${schema}.relay_parked ORDER BY seq`);
      return rows.map((row): ParkedMessage => ({
        id: String(row['msg_id']),
        payload: row['payload'] as Buffer,
        reason: String(row['reason']),
      }));
    },
    close: async () => pool.end(),
  };
}

async function begin(client: PoolClient, schema: string): Promise<WritingTransaction> {
  let isOpen = true;
  async function end(how: 'COMMIT' | 'ROLLBACK'): Promise<void> {
    if (!isOpen) return;
    isOpen = false;
    const { command } = await client.query(how);
    client.release();
    assert.equal(command, how);
  }
  await client.query('BEGIN ISOLATION LEVEL READ COMMITTED');
  return {
    enter: async () => {
      await client.query('SELECT pg_current_xact_id()');
    },
    async change(aggregateId) {
      const { rows } = await client.query(
        `INSERT INTO ${schema}.aggregates AS a VALUES ($1)
         ON CONFLICT (id) DO UPDATE SET version = a.version + 1 RETURNING version`,
        [aggregateId],
      );
      return Number(rows[0]!['version']);
    },
    append: async (messages) => append(client, schema, messages),
    savepoint: async () => {
      await client.query('SAVEPOINT before');
    },
    rollbackToSavepoint: async () => {
      await client.query('ROLLBACK TO SAVEPOINT before');
    },
    commit: async () => end('COMMIT'),
    rollback: async () => end('ROLLBACK'),
  };
}

/** Which shard a key is in is for the outbox to say; a source has to take it from the row. */
async function append(client: PoolClient, schema: string, messages: readonly Message[]): Promise<SourcedMessage[]> {
  const stored = messages.map((message) => ({ ...message, id: uuidv7() }));
  const { rows } = await client.query(
    `INSERT INTO ${schema}.outbox (shard, topic, aggregate_id, msg_id, event_type, payload, headers)
     SELECT abs(hashtext(m.aggregate_id)::bigint) % s.shards, m.topic, m.aggregate_id, m.msg_id, m.type, m.payload, m.headers
     FROM ${schema}.settings s,
       unnest($1::text[], $2::text[], $3::uuid[], $4::text[], $5::bytea[], $6::json[])
         WITH ORDINALITY AS m (topic, aggregate_id, msg_id, type, payload, headers, n)
     ORDER BY n RETURNING to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS created_at`,
    [
      stored.map(({ topic }) => topic),
      stored.map(({ aggregateId }) => aggregateId),
      stored.map(({ id }) => id),
      stored.map(({ type }) => type),
      stored.map(({ payload }) => Buffer.from(payload)),
      stored.map(({ headers }) => (headers ? JSON.stringify(headers) : null)),
    ],
  );
  return stored.map((message, n) => ({ ...message, createdAt: new Date(String(rows[n]!['created_at'])) }));
}

async function openSource(
  options: PostgresHarnessOptions,
  schema: string,
  name: string,
  admin: Pool,
): Promise<SourceUnderTest> {
  const pool = options.openPool(name);
  const source = options.createSource(pool, schema);
  return {
    source,
    cut: async () => endHolders(admin, name),
    async close() {
      await source.close();
      await pool.end();
    },
  };
}

/** Connections of this name inside a transaction, also such as are reading ahead at the moment. */
async function endHolders(admin: Pool, name: string): Promise<void> {
  const endAll = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = $1 AND datname = current_database()
      AND (state LIKE 'idle in transaction%' OR backend_xid IS NOT NULL)`;
  const deadline = performance.now() + patienceMs;
  while ((await query(admin, endAll, [name])).length > 0) {
    assert.ok(performance.now() < deadline, 'a connection must end');
    await delay(5);
  }
}

async function query(pool: Pool, text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
  const client = await pool.connect();
  try {
    return (await client.query(text, values)).rows;
  } finally {
    client.release();
  }
}
