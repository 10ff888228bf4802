import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import { EXIT, Refusal } from '@twiceproof/program';
import { createAdminServer, listenAdmin } from '@twiceproof/program/admin';
import { endsWithin } from '@twiceproof/program/ends-within';
import { createMetrics } from '@twiceproof/program/metrics';
import { createConsumer } from 'twiceproof/consumer';
import { createInboxKeeper, type InboxKeeper } from 'twiceproof/consumer/inbox-keeper';
import { TwiceproofError } from 'twiceproof/errors';
import type { Transport } from 'twiceproof/transport';
import { chargeFirst } from './charge-first.ts';
import { chargeOrders, consumerName } from './charges.ts';
import { refuseExperiments, requireFit } from './checks.ts';
import { withDuplicates } from './duplicates.ts';
import { namesIn, type PaymentsFlags } from './flags.ts';
import { inDays, type Retention } from './retention.ts';
import { watchUnderWay } from './under-way.ts';
import { watchInbox } from './watch-inbox.ts';
import { watchPayments } from './watch.ts';

export interface ServeOptions {
  given: PaymentsFlags;
  pool: pg.Pool;
  /** That reaches the server itself: see `createInboxKeeper`. */
  keeperPool: pg.Pool;
  transport: Transport;
  signal: AbortSignal;
  log(line: string): void;
}

export interface Serving {
  admin: string;
  retention: Retention;
  /** Finishes the batches that are under way, and takes no others. */
  stop(): Promise<void>;
}

/** Looks whether all is fit, and begins to consume. */
export async function serve({ given, pool, keeperPool, transport, signal, log }: ServeOptions): Promise<Serving> {
  const production = process.env['NODE_ENV'] === 'production';
  refuseExperiments({ given, production, warn: log });
  const retention = await requireFit({ given, pool, transport, production, warn: log });
  const { horizonMs, ttlMs, why } = retention;
  log(`payments: a message can come again for ${inDays(horizonMs)} (${why}); ids are kept for ${inDays(ttlMs)}`);
  const metrics = createMetrics();
  const watch = watchPayments(metrics, log);
  const { partitionMs, aheadMs, intervalMs } = retention;
  const spans = { ttlMs, partitionMs, aheadMs, intervalMs };
  const keeper = createInboxKeeper({ pool: keeperPool, ...spans, onError: watch.trouble });
  await keepOnce(keeper, signal);

  const watched = watchUnderWay(transport);
  const rate = given['dup-rate'];
  const duplicates = { rate, seed: given.seed, onInjected: watch.injected };
  const consuming = {
    pool,
    transport: rate > 0 ? withDuplicates(watched.transport, duplicates) : watched.transport,
    group: given.group,
    topics: namesIn(given.topics),
    batch: given.batch,
    observe: watch.pass,
    onTrouble: watch.trouble,
  };
  const chargesFirst = given['effect-order'] === 'charge-first';
  const side = chargesFirst ? ('after-charge' as const) : ('before-charge' as const);
  const counts = { ...watch, dies: given['crash-point'] === 'effect' ? side : undefined };
  const consume = async (stopped: AbortSignal): Promise<void> => {
    if (chargesFirst) {
      return chargeFirst({ ...consuming, charge: chargeOrders('set', counts).set }, stopped);
    }
    const consumer = createConsumer({
      ...consuming,
      name: consumerName,
      handler: chargeOrders(given.shape, counts),
      ...(given.workers !== undefined && { workers: given.workers }),
      unsafeRunLate: given['unsafe-ttl'] && !given['hold-late'],
    });
    return consumer.run(stopped);
  };
  const ready = readiness({ pool, oldestMs: watched.oldestMs, stalledMs: given['stalled-ms'], signal });
  const admin = createAdminServer({ metrics, ready });
  const address = await listenAdmin(admin, given['admin-port']);
  const stopping = new AbortController();
  const gauges = { metrics, pool, retention, oldestUnderWayMs: watched.oldestMs };
  // Nobody waits for it until the end: a bug in one of them ends the process, with its stack.
  const running = Promise.all([
    consume(stopping.signal),
    keeper.run(stopping.signal),
    watchInbox(gauges, stopping.signal),
  ]);
  return {
    admin: address,
    retention,
    stop: async () => {
      stopping.abort();
      await running;
      admin.close();
      admin.closeAllConnections();
    },
  };
}

const attempts = 40;
const pauseMs = 250;

/** Nothing is accepted before. Others may be at the same, or use what it wants to drop: then it is tried again. */
async function keepOnce(keeper: InboxKeeper, signal: AbortSignal): Promise<void> {
  let reason: unknown = 'another is at it all the time';
  for (let attempt = 1; attempt <= attempts && !signal.aborted; attempt += 1) {
    try {
      if ((await keeper.runOnce()) === 'idle') return;
    } catch (error) {
      if (error instanceof TwiceproofError) throw new Refusal(`${error.message}.`, error.todo, EXIT.usage);
      reason = error;
    }
    await delay(pauseMs, undefined, { signal }).catch(() => {});
  }
  const problem = `The inbox cannot be prepared: ${reason instanceof Error ? reason.message : String(reason)}.`;
  throw new Refusal(
    problem,
    'Check where the keeper finds its database, look for transactions that have been open for long, and try again.',
    EXIT.environment,
  );
}

/** How long one waits for the answer of a database before it counts as away. */
export const patienceMs = 5_000;

interface ReadinessParts {
  pool: pg.Pool;
  oldestMs(): number;
  stalledMs: number;
  signal: AbortSignal;
}

function readiness({ pool, oldestMs, stalledMs, signal }: ReadinessParts): () => Promise<void> {
  return async () => {
    if (signal.aborted) throw new Error('it is stopping');
    if (!(await endsWithin(patienceMs, pool.query('SELECT FROM twiceproof.inbox_bounds')))) {
      throw new Error('the database does not answer');
    }
    const ms = oldestMs();
    if (ms >= stalledMs) throw new Error(`a batch has been under way for ${Math.round(ms / 1_000)} s`);
  };
}
