/** The database server under all cases: how it is set, and what it says of itself. */
import { readFileSync, statSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { PostgresServer } from '@twiceproof/infra/postgres';

/** All else is as Postgres ships it: fsync, synchronous_commit and autovacuum are on. */
export const serverSettings = {
  // Shipped with 128 MB, less than the index of the keys.
  shared_buffers: '2GB',
  // Shipped with 1 GB, which the preload would fill every few seconds.
  max_wal_size: '8GB',
  // Shipped with 80 MB: beyond that a segment of the log is not used again but made anew, in the middle of somebody's commit.
  min_wal_size: '4GB',
  // With the SQLSTATE, by which errors are counted.
  log_line_prefix: '%m [%p] %e ',
} as const;

/** What happened in the database while processes ran. */
export interface ServerFacts {
  deadlocks: number;
  /** SQLSTATE 40001. */
  serializationFailures: number;
  /** Lines of the server's log, by SQLSTATE. */
  errors: Record<string, number>;
  sweptKeysPerSecond: number;
}

export interface WatchedServer {
  /** Empties what a case has filled but not the keys, and writes everything to the disk: each case starts alike. */
  reset(): Promise<void>;
  /** What happens while `work` starts processes, uses and ends them. */
  during<T>(work: () => Promise<T>): Promise<[T, ServerFacts]>;
  countKeys(): Promise<number>;
  close(): Promise<void>;
}

export async function watchServer({ url, logFile }: PostgresServer): Promise<WatchedServer> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const counters = async (): Promise<{ deadlocks: number; deleted: number }> => {
    const { rows } = await client.query<{ deadlocks: string; deleted: string }>(
      `SELECT (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()),
              (SELECT n_tup_del FROM pg_stat_user_tables WHERE relid = 'twiceproof.idempotency_keys'::regclass) AS deleted`,
    );
    return { deadlocks: Number(rows[0]?.deadlocks), deleted: Number(rows[0]?.deleted) };
  };
  return {
    reset: async () => {
      await client.query('TRUNCATE orders, twiceproof.outbox');
      await client.query('CHECKPOINT');
    },
    during: async (work) => {
      const logBytes = statSync(logFile).size;
      const before = await counters();
      const began = performance.now();
      const stop = new AbortController();
      const publishing = publishUntil(stop.signal, client);
      let result;
      try {
        result = await work();
      } finally {
        stop.abort();
        await publishing;
      }
      const seconds = (performance.now() - began) / 1_000;
      await untilOrdersAreGone(client);
      const after = await counters();
      const errors = errorsIn(readFileSync(logFile).subarray(logBytes).toString());
      const facts = {
        deadlocks: after.deadlocks - before.deadlocks,
        serializationFailures: errors['40001'] ?? 0,
        errors,
        sweptKeysPerSecond: Math.round((after.deleted - before.deleted) / seconds),
      };
      return [result, facts];
    },
    countKeys: async () => {
      const { rows } = await client.query<{ count: string }>('SELECT count(*) FROM twiceproof.idempotency_keys');
      return Number(rows[0]?.count);
    },
    close: async () => client.end(),
  };
}

/**
 * A server that has lived for a while writes over segments of its log that it has used before. A new one makes each of them,
 * 16 MB of zeros, in the middle of a commit, and every other commit waits for that: 50 to 70 ms every 2.7 s at 5,000 orders
 * a second. So this goes once through as many as the server keeps.
 */
export async function ageLog(client: pg.Client): Promise<void> {
  await client.query(`DO $$ BEGIN
    FOR n IN 1 .. pg_size_bytes(current_setting('min_wal_size')) / pg_size_bytes(current_setting('wal_segment_size')) LOOP
      PERFORM pg_logical_emit_message(false, 'bench', '');
      PERFORM pg_switch_wal();
    END LOOP;
  END $$`);
  // Which gives them new names, of segments to come.
  await client.query('CHECKPOINT');
}

/** How many segments of the log the server has made anew, so far. */
export async function madeSegments(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `SELECT sum(write_bytes)::float8 / pg_size_bytes(current_setting('wal_segment_size')) AS count
       FROM pg_stat_io WHERE object = 'wal' AND context = 'init'`,
  );
  return rows[0]?.count ?? 0;
}

/**
 * No relay runs here, and Orders counts what is not published: half a million rows after a minute, at the price of a
 * whole core while it counts. So this says once a second that all is published, as a relay that keeps up would.
 */
async function publishUntil(signal: AbortSignal, client: pg.Client): Promise<void> {
  while (!signal.aborted) {
    await client.query('UPDATE twiceproof.relay_cursor SET prev = pg_current_snapshot()');
    await delay(1_000, undefined, { signal }).catch(() => {});
  }
}

/** A backend reports what it has done at its end, which is a moment after that of its client. */
async function untilOrdersAreGone(client: pg.Client): Promise<void> {
  for (let tries = 0; tries < 100; tries += 1) {
    const { rowCount } = await client.query("SELECT 1 FROM pg_stat_activity WHERE application_name = 'orders'");
    if (rowCount === 0) return;
    await delay(20);
  }
}

/** How often each SQLSTATE stands in the log as an error. */
export function errorsIn(log: string): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const [, code = ''] of log.matchAll(/ \[\d+\] (\w{5}) (?:ERROR|FATAL|PANIC): /g)) {
    counts[code] = (counts[code] ?? 0) + 1;
  }
  return counts;
}
