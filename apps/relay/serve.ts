import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import { Refusal } from '@twiceproof/program';
import { createAdminServer } from '@twiceproof/program/admin';
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
    observe: watch.pass,
    onTrouble: watch.trouble,
  });
  const shards = watchShards(metrics, pool);
  const look = async () => findTopicProblems(transport, topics);
  const ready = readiness({ source, shards, stalledMs: given['stalled-ms'], signal });
  const admin = createAdminServer({ metrics, ready });
  const port = await listen(admin, given['admin-port']);
  const stopping = new AbortController();
  // Nobody waits for it until the end: a bug in one of them ends the process, with its stack.
  const running = Promise.all([
    relay.run(stopping.signal),
    shards.run(stopping.signal),
    watchDatabase(metrics, pool, stopping.signal),
    watchTopics({ metrics, look, atStart: topicProblems, everyMs: given['topics-every-ms'], log }, stopping.signal),
  ]);
  return {
    admin: `http://127.0.0.1:${port}`,
    stop: async () => {
      stopping.abort();
      await running;
      admin.close();
      admin.closeAllConnections();
    },
  };
}

/** Answers the port. */
async function listen(server: Server, port: number): Promise<number> {
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code !== 'EADDRINUSE') throw cause;
    throw new Refusal(`Port ${port} is taken.`, 'Choose another by --admin-port; 0 takes a free one.');
  }
  return (server.address() as AddressInfo).port;
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

/** Whether it does; rejects as it does. */
export async function endsWithin(ms: number, work: Promise<unknown>): Promise<boolean> {
  const timer = new AbortController();
  const late = delay(ms, false, { signal: timer.signal }).catch(() => false);
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    timer.abort();
    work.catch(() => {});
  }
}
