/** `npm run orders`: takes orders over HTTP and gRPC, each once, whatever is repeated. */
import { once } from 'node:events';
import pg from 'pg';
import { createKeySweeper } from 'twiceproof/edge/key-sweeper';
import { createPendingGuard } from 'twiceproof/edge/pending-guard';
import { serverProblems } from 'twiceproof/server';
import type { Service } from 'twiceproof/service';
import { EXIT, main, Refusal, type Context, type FlagSpecs } from '@twiceproof/program';
import { endsWithin } from '@twiceproof/program/ends-within';
import { baselines, createBaseline, createOperations, type Operations } from './operations.ts';
import { migrateOrders } from './schema.ts';
import { serve } from './serve.ts';

const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'the Postgres that holds everything' },
  host: {
    type: 'string',
    default: '127.0.0.1',
    help: 'where HTTP and gRPC listen; the admin port is always on loopback',
  },
  port: { type: 'integer', default: 3000, min: 0, max: 65_535, help: 'of HTTP; 0 for a free one' },
  'grpc-port': { type: 'integer', default: 50_051, min: 0, max: 65_535, help: '0 for a free one' },
  'admin-port': {
    type: 'integer',
    default: 9464,
    min: 0,
    max: 65_535,
    help: '/metrics, /livez, /readyz; 0 for a free one',
  },
  shape: {
    type: 'choice',
    choices: ['group', 'handler'],
    default: 'group',
    help: 'one transaction for many requests, or for each',
  },
  baseline: {
    type: 'choice',
    choices: baselines,
    help: 'WITHOUT the idempotency check, to measure its price',
  },
  connections: { type: 'integer', default: 10, min: 1, max: 1_000, help: 'to the database, at most' },
  'batch-every-ms': {
    type: 'integer',
    default: 8,
    min: 0,
    max: 1_000,
    help: 'in the shape group: how long after one transaction with new orders the next begins at the soonest',
  },
  'retention-hours': {
    type: 'integer',
    default: 72,
    min: 1,
    max: 87_600,
    help: 'how long a key is kept, and a request may be repeated',
  },
  'max-pending': {
    type: 'integer',
    default: 5_000_000,
    min: 1,
    max: 1_000_000_000,
    help: 'unpublished messages from which on new requests are told to come again',
  },
  'grace-ms': {
    type: 'integer',
    default: 10_000,
    min: 0,
    max: 600_000,
    help: 'for what is under way when told to stop',
  },
} as const satisfies FlagSpecs;

await main({
  name: 'orders',
  summary: 'Takes orders over HTTP and gRPC, each once, whatever is repeated.',
  flags,
  run,
});

async function run({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  if (given.baseline && process.env['NODE_ENV'] === 'production') {
    throw new Refusal(
      `--baseline=${given.baseline} makes a second order of each repeated request.`,
      'It is for measuring only: unset it, or NODE_ENV=production.',
      EXIT.usage,
    );
  }
  const pool = openPool(given['database-url'], given.connections, output.progress);
  try {
    await prepare(pool);
    await requireDurable(pool, output.progress);
    const retentionMs = given['retention-hours'] * 3_600_000;
    const guard = createPendingGuard({
      pool,
      maxPending: given['max-pending'],
      onError: (error) => output.progress(`orders: what is pending cannot be counted: ${String(error)}`),
    });
    const sweeper = createKeySweeper({
      pool,
      retentionMs,
      onError: (error) => output.progress(`orders: expired keys wait: ${String(error)}`),
    });
    const serving = await serve({
      pool,
      operations: chooseOperations({ pool, retentionMs, admits: guard.admits }, given, output.progress),
      host: given.host,
      ports: { http: given.port, grpc: given['grpc-port'], admin: given['admin-port'] },
      log: output.progress,
    }).catch(refuseToListen);
    // Not before it serves: what runs must be stopped before the pool ends.
    const services = runServices([guard, sweeper]);
    output.ready({ ...serving.addresses, pid: process.pid });
    const { http, grpc, admin } = serving.addresses;
    output.say(`orders: ${http}, gRPC at ${grpc}, ${admin}/metrics. Ctrl-C stops.`);
    if (!signal.aborted) await once(signal, 'abort');
    output.progress('stopping ...');
    const deadline = performance.now() + given['grace-ms'];
    const finished = await serving.drain(given['grace-ms']);
    if (!finished) output.progress('not all was finished in time; what was cut off may be repeated with its key.');
    // A database that has fallen silent does not answer a farewell either.
    await endsWithin(
      Math.max(0, deadline - performance.now()),
      services.stop().then(async () => pool.end()),
    );
    return EXIT.ok;
  } catch (error) {
    await pool.end();
    throw error;
  }
}

function refuseToListen(error: unknown): never {
  const { code, message } = error as NodeJS.ErrnoException;
  const isOfAddress = ['EADDRINUSE', 'EADDRNOTAVAIL', 'EACCES', 'ENOTFOUND'].includes(code ?? '');
  // grpc-js has no code for it.
  if (!isOfAddress && !message.includes('No address added')) throw error;
  throw new Refusal(
    `It cannot listen: ${message}.`,
    'Choose another --host, --port, --grpc-port or --admin-port.',
    EXIT.environment,
  );
}

async function requireDurable(pool: pg.Pool, warn: (line: string) => void): Promise<void> {
  const problems = await serverProblems(pool);
  if (problems.length === 0) return;
  const text = `The database cannot be trusted: ${problems.join('; ')}.`;
  if (process.env['NODE_ENV'] !== 'production') return warn(`WARNING: ${text}`);
  throw new Refusal(text, 'Correct the settings of the server, or use another.', EXIT.environment);
}

function runServices(services: readonly Service[]): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const running = Promise.all(services.map(async (service) => service.run(stopping.signal)));
  return {
    stop: async () => {
      stopping.abort();
      await running;
    },
  };
}

function openPool(url: string | undefined, max: number, log: (line: string) => void): pg.Pool {
  if (!url)
    throw new Refusal(
      'There is no database.',
      'Set DATABASE_URL; `npm run infra -- up` starts a Postgres and prints it.',
    );
  const pool = new pg.Pool({
    connectionString: url,
    max,
    connectionTimeoutMillis: 5_000,
    // Longer than a lock may be waited for. A server that has fallen silent must not hold a lane for ever.
    query_timeout: 15_000,
    application_name: 'orders',
    keepAlive: true,
  });
  // An idle connection was lost; the pool opens another one when it needs it.
  pool.on('error', (error) => log(`orders: ${error.message}`));
  return pool;
}

async function prepare(pool: pg.Pool): Promise<void> {
  try {
    await migrateOrders(pool);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new Refusal(
      `The database cannot be used: ${reason}.`,
      'Check DATABASE_URL, that the server runs, and that this user may create tables.',
      EXIT.environment,
      { cause },
    );
  }
}

function chooseOperations(
  edge: { pool: pg.Pool; retentionMs: number; admits: () => boolean },
  { shape, baseline, 'batch-every-ms': batchEveryMs }: Context<typeof flags>['flags'],
  warn: (line: string) => void,
): Operations {
  if (!baseline) return createOperations({ ...edge, batchEveryMs }, shape);
  const missing = {
    'no-database': 'idempotency, and keeps nothing',
    none: 'idempotency and without the outbox',
    'outbox-only': 'idempotency',
  }[baseline];
  warn(`WARNING: this runs without ${missing}. A repeated request is a second order. For measuring only.`);
  return createBaseline(edge.pool, baseline);
}
