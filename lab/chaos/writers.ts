/**
 * Writers that are built to be nasty: each changes aggregates under their row locks and appends an event for each change,
 * with the version that it has drawn. They write SQL of their own; what they do is what an application may do.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';

export interface Writing {
  database: pg.Pool;
  /** By aggregate. */
  topicOf(aggregate: string): string;
  aggregates: readonly string[];
  /** At least. */
  transactions: number;
  /** And until then, however many transactions it takes. */
  until: AbortSignal;
}

type Kind = (client: pg.PoolClient, writing: Writing, n: number) => Promise<void>;

const kinds: Kind[] = [
  async (client, writing, n) => change(client, writing, pick(writing, n, 1)),
  async (client, writing, n) => change(client, writing, pick(writing, n, 3)),
  // It has its transaction id long before it has a lock.
  async (client, writing, n) => {
    await client.query('SELECT pg_current_xact_id()');
    await delay(20);
    await change(client, writing, pick(writing, n, 1));
  },
  // It is done with its changes, and stays open while others come and go.
  async (client, writing, n) => {
    await change(client, writing, pick(writing, n, 2));
    await delay(100);
  },
  async (client, writing, n) => {
    await change(client, writing, pick(writing, n, 1));
    await client.query('SAVEPOINT half');
    await change(client, writing, pick(writing, n + 1, 1), 'rolled back to a savepoint');
    await client.query('ROLLBACK TO half');
  },
  async (client, writing, n) => {
    await change(client, writing, pick(writing, n, 2), 'aborted');
    throw new Abort();
  },
];

class Abort extends Error {}

const writersAtOnce = 8;

/** Answers when all have ended. A database that goes away meanwhile is waited for. */
export async function write(writing: Writing): Promise<void> {
  let begun = 0;
  const goesOn = (): boolean => begun < writing.transactions || !writing.until.aborted;
  const one = async (): Promise<void> => {
    while (goesOn()) {
      const n = (begun += 1);
      // What is beyond is there so that the fault has company; all of it has to be published and read back.
      if (n > writing.transactions) await delay(20);
      await transact(writing, kinds[n % kinds.length]!, n).catch(async () => delay(50));
    }
  };
  await Promise.all(Array.from({ length: writersAtOnce }, one));
}

async function transact(writing: Writing, kind: Kind, n: number): Promise<void> {
  const client = await writing.database.connect();
  client.on('error', ignore);
  let isBroken = true;
  try {
    await client.query('BEGIN');
    await kind(client, writing, n);
    await client.query('COMMIT');
    isBroken = false;
  } catch (error) {
    if (!(error instanceof Abort)) throw error;
    await client.query('ROLLBACK');
    isBroken = false;
  } finally {
    client.off('error', ignore);
    client.release(isBroken);
  }
}

const ignore = (): void => {};

/** In the order of their names, so that no two writers wait for each other. */
function pick({ aggregates }: Writing, n: number, count: number): string[] {
  // So that every kind of writer comes to every aggregate.
  const from = 5 * n + Math.floor(n / kinds.length);
  const picked = Array.from({ length: count }, (_, k) => aggregates[(from + 3 * k) % aggregates.length]!);
  return [...new Set(picked)].toSorted();
}

/** `ghost` says why nobody may ever see it. */
async function change(
  client: pg.PoolClient,
  writing: Writing,
  picked: readonly string[],
  ghost?: string,
): Promise<void> {
  for (const aggregate of picked) {
    const { rows } = await client.query<{ version: number }>(
      `INSERT INTO aggregates VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET version = aggregates.version + 1
       RETURNING version`,
      [aggregate],
    );
    await append(client, writing.topicOf(aggregate), aggregate, { version: rows[0]!.version, ...(ghost && { ghost }) });
  }
}

export async function append(
  client: pg.PoolClient | pg.Pool,
  topic: string,
  aggregate: string,
  payload: object,
  type = 'changed',
): Promise<void> {
  await client.query(
    `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload)
     SELECT (hashtextextended($2 COLLATE "C", 0) & 9223372036854775807) % shards, $1, $2, $3, $5, $4
     FROM twiceproof.settings`,
    [topic, aggregate, newId(), Buffer.from(JSON.stringify(payload)), type],
  );
}

/** A UUIDv7: the time, then what a random one has behind it. */
function newId(): string {
  const time = Date.now().toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}
