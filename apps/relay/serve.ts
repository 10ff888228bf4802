import type pg from 'pg';
import { createAdminServer, listenAdmin } from '@twiceproof/program/admin';
import { endsWithin } from '@twiceproof/program/ends-within';
import { createMetrics } from '@twiceproof/program/metrics';
import { createRelay } from 'twiceproof/relay';
import type { RelayTimes } from 'twiceproof/relay-times';
import type { Source } from 'twiceproof/source';
import { createPollSource } from 'twiceproof/sources/poll';
import type { Transport } from 'twiceproof/transport';
import { findTopicProblems, requireFit } from './checks.ts';
import { namesIn, type RelayFlags } from './flags.ts';
import { watchDatabase } from './watch-database.ts';
import { watchShards, type ShardWatch } from './watch-shards.ts';
import { watchTopics } from './watch-topics.ts';
import { watchRelay } from './watch.ts';

export interface ServeOptions {
  given: RelayFlags;
  pool: pg.Pool;
  transport: Transport;
  times: RelayTimes;
  signal: AbortSignal;
  log(line: string): void;
}

export interface Serving {
  admin: string;
  /** Finishes the batches that are under way, and takes no others. */
  stop(): Promise<void>;
}

/** Looks whether all is fit, and begins to publish. */
export async function serve({ given, pool, transport, times, signal, log }: ServeOptions): Promise<Serving> {
  const metrics = createMetrics();
  const topics = namesIn(given.topics);
  const production = process.env['NODE_ENV'] === 'production';
  let onStuckRelay = (_pid: number): void => {};
  const source = createPollSource({
    pool,
    pollIntervalMs: given['poll-interval-ms'],
    times,
    onStuckRelay: (pid) => onStuckRelay(pid),
  });
  const topicProblems = await requireFit({ pool, source, transport, topics, production, warn: log });
  const watch = watchRelay({ metrics, log, ...(await beginning(pool, given.batch)) });
  onStuckRelay = watch.stuck;
  const { name, batch, lanes } = given;
  const relay = createRelay({
    source,
    transport,
    name,
    batch,
    lanes,
    times,
    // Elsewhere people try things out; there, a topic that nobody has looked at may lose what it takes.
    ...(production && { topics }),
    observe: watch.pass,
    onTrouble: watch.trouble,
  });
  const shards = watchShards(metrics, pool);
  const look = async () => findTopicProblems(transport, topics);
  const ready = readiness({ source, shards, stalledMs: given['stalled-ms'], signal });
  const admin = createAdminServer({ metrics, ready });
  const address = await listenAdmin(admin, given['admin-port']);
  const stopping = new AbortController();
  // Nobody waits for it until the end: a bug in one of them ends the process, with its stack.
  const running = Promise.all([
    relay.run(stopping.signal),
    shards.run(stopping.signal),
    watchDatabase(metrics, pool, stopping.signal),
    watchTopics({ metrics, look, atStart: topicProblems, everyMs: given['topics-every-ms'], log }, stopping.signal),
  ]);
  return {
    admin: address,
    stop: async () => {
      stopping.abort();
      await running;
      admin.close();
      admin.closeAllConnections();
    },
  };
}

/** How long one waits for the answer of a database before it counts as away. */
export const patienceMs = 5_000;

interface ReadinessParts {
  source: Source;
  shards: ShardWatch;
  stalledMs: number;
  signal: AbortSignal;
}

function readiness({ source, shards, stalledMs, signal }: ReadinessParts): () => Promise<void> {
  return async () => {
    if (signal.aborted) throw new Error('it is stopping');
    if (!(await endsWithin(patienceMs, source.check()))) throw new Error('the database does not answer');
    const { shard, ms } = shards.stalled() ?? { shard: 0, ms: 0 };
    if (ms < stalledMs) return;
    throw new Error(`shard ${shard} has published nothing for ${Math.round(ms / 1_000)} s although messages wait`);
  };
}

/** What a relay that ended before this one can have left half done. */
async function beginning(pool: pg.Pool, batch: number): Promise<{ startedAtMs: number; maxUnfinished: number }> {
  const { rows } = await pool.query<{ now: number; shards: number }>(
    'SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS now, shards FROM twiceproof.settings',
  );
  const { now, shards } = rows[0]!;
  return { startedAtMs: now, maxUnfinished: shards * batch };
}
