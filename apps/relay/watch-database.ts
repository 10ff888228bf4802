import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import type { Metrics } from '@twiceproof/program/metrics';
import { countPending, oldestPending } from 'twiceproof/outbox/pending';

const lookEveryMs = 1_000;
const longestPauseMs = 60_000;
/** It rests for so many times what it took: half a hundredth of the time. */
const restFor = 200;
const countUpTo = 5_000_000;

/** What is so in the database at the moment; a value that nobody knows is missing. */
type Known = Partial<Record<keyof typeof gauges, number>>;

const gauges = {
  relay_pending_messages:
    'Committed and not yet published; counted up to 5,000,000, and where that takes long once a minute.',
  relay_pending_oldest_seconds: 'Age of the oldest that is not yet published.',
  relay_parked_messages: 'Messages that are kept aside and wait for a person.',
  relay_parked_keys: 'Keys whose messages are kept aside and wait for a person.',
  relay_database_oldest_transaction_seconds: 'Age of the oldest transaction that a client of the server has open.',
  relay_database_xmin_age: 'How many transaction ids ago the oldest snapshot was taken that somebody still holds.',
  relay_database_prepared_transactions: 'Transactions that are prepared and neither committed nor rolled back.',
  relay_database_prepared_oldest_seconds: 'Age of the oldest of them.',
  relay_database_frozen_age: 'Transaction ids that were used since the oldest that is not frozen, of 2,000,000,000.',
} as const;

/**
 * What others do to the database that a relay depends on: an open transaction keeps its rows, and all that is behind its
 * snapshot, from being removed. Without the right to see others (pg_read_all_stats) the first counts our own only.
 */
const health = `SELECT
  (SELECT count(*) FROM twiceproof.relay_parked)::float8 AS relay_parked_messages,
  (SELECT count(*) FROM (SELECT DISTINCT shard, aggregate_id FROM twiceproof.relay_parked) AS k)::float8
    AS relay_parked_keys,
  (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::float8 FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) AS relay_database_oldest_transaction_seconds,
  (SELECT coalesce(max(age(x)), 0)::float8 FROM (
     SELECT backend_xmin AS x FROM pg_stat_activity WHERE pid <> pg_backend_pid()
     UNION ALL SELECT xmin FROM pg_replication_slots
     UNION ALL SELECT transaction FROM pg_prepared_xacts) AS held) AS relay_database_xmin_age,
  (SELECT count(*) FROM pg_prepared_xacts)::float8 AS relay_database_prepared_transactions,
  (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(prepared)), 0)::float8 FROM pg_prepared_xacts)
    AS relay_database_prepared_oldest_seconds,
  (SELECT max(age(datfrozenxid)) FROM pg_database)::float8 AS relay_database_frozen_age`;

/** Each look is taken again and again. One that takes long, as counting a backlog does, must not delay the others. */
export async function watchDatabase(metrics: Metrics, pool: pg.Pool, signal: AbortSignal): Promise<void> {
  const looks: (() => Promise<Known>)[] = [
    async () => (await pool.query<Known>(health)).rows[0]!,
    async () => ({ relay_pending_oldest_seconds: (await oldestPending(pool)) ?? 0 }),
    async () => ({ relay_pending_messages: await countPending(pool, countUpTo) }),
  ];
  const known: Known[] = looks.map(() => ({}));
  for (const [name, help] of Object.entries(gauges)) {
    metrics.gauge(name, help, () => known.find((each) => name in each)?.[name as keyof Known]);
  }
  await Promise.all(
    looks.map(async (look, n) => {
      while (!signal.aborted) {
        const began = performance.now();
        known[n] = await look().catch(() => ({}));
        const pauseMs = Math.min(longestPauseMs, Math.max(lookEveryMs, restFor * (performance.now() - began)));
        await delay(pauseMs, undefined, { signal }).catch(() => {});
      }
    }),
  );
}
