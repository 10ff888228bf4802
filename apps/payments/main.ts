/** `npm run payments`: charges each order once, whatever comes again. Several may run at once. */
import { once } from 'node:events';
import pg from 'pg';
import { EXIT, main, Refusal, type Context } from '@twiceproof/program';
import { endsWithin } from '@twiceproof/program/ends-within';
import { kafkaSecurity, kafkaTransport } from 'twiceproof/transports/kafka';
import { flagProblems, flags, namesIn, type PaymentsFlags } from './flags.ts';
import { patienceMs, serve, type Serving } from './serve.ts';

await main({
  name: 'payments',
  summary: 'Charges each order once, whatever comes again. Several may run at once.',
  flags,
  problems: flagProblems,
  run,
});

async function run({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const { databaseUrl, brokers } = addressesOf(given);
  // One for each batch under way, two for lanes that are suspect, and one each for the keeper, what operators ask for, those
  // who watch, and the start of a lane.
  const pool = openPool(databaseUrl, (given.workers ?? 2) + 7);
  const keeperUrl = given['keeper-database-url'];
  const keeperPool = keeperUrl ? openPool(keeperUrl, 2) : pool;
  const transport = kafkaTransport({ bootstrap: brokers, clientId: 'twiceproof-payments', ...kafkaSecurity() });
  const closeAll = async (): Promise<void> => {
    await Promise.all([transport.close(), ...[...new Set([pool, keeperPool])].map(async (each) => each.end())]);
  };
  let serving: Serving;
  try {
    serving = await serve({ given, pool, keeperPool, transport, signal, log: output.progress });
  } catch (error) {
    await closeAll();
    throw error;
  }
  const { admin, retention } = serving;
  output.ready({ admin, pid: process.pid, horizonMs: retention.horizonMs, ttlMs: retention.ttlMs });
  output.say(`payments: ${admin}/metrics. Ctrl-C stops.`);
  if (!signal.aborted) await once(signal, 'abort');
  output.progress('stopping ...');
  const stopped = serving.stop().then(closeAll);
  if (await endsWithin(given['grace-ms'], stopped)) return EXIT.ok;
  output.progress('the batch under way was not finished in time; it comes again, and what was committed is known.');
  process.exit(EXIT.ok);
}

function addressesOf(given: PaymentsFlags): { databaseUrl: string; brokers: string[] } {
  const { 'database-url': databaseUrl = '', brokers: list = '' } = given;
  const brokers = namesIn(list);
  const missing = [
    ...(databaseUrl === '' ? ['DATABASE_URL (the database)'] : []),
    ...(brokers.length === 0 ? ['KAFKA_BROKERS (the brokers)'] : []),
  ];
  if (missing.length === 0) return { databaseUrl, brokers };
  throw new Refusal(
    `It is not set: ${missing.join(', ')}.`,
    '`npm run infra -- up` starts both and prints where they are.',
  );
}

function openPool(url: string, max: number): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    max,
    connectionTimeoutMillis: patienceMs,
    // A server that has fallen silent must not hold a worker for ever.
    query_timeout: 30_000,
    application_name: 'twiceproof-payments',
    keepAlive: true,
  });
  // An idle connection was lost; the pool opens another one when it needs it.
  pool.on('error', () => {});
  return pool;
}
