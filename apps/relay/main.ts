/** `npm run relay`: publishes committed outbox rows to Kafka, in order for each key. Several may run at once. */
import { once } from 'node:events';
import pg from 'pg';
import type { RelayTimes } from 'twiceproof/relay-times';
import { kafkaSecurity, kafkaTransport } from 'twiceproof/transports/kafka';
import { EXIT, main, Refusal, type Context } from '@twiceproof/program';
import { endsWithin } from '@twiceproof/program/ends-within';
import { flagProblems, flags, namesIn, type RelayFlags } from './flags.ts';
import { patienceMs, serve, type Serving } from './serve.ts';

await main({
  name: 'relay',
  summary: `Publishes committed outbox rows to Kafka, in order for each key. Several may run at once. With
NODE_ENV=production it refuses what it only warns of elsewhere: a database or a topic that may lose what it has
acknowledged; and it publishes to --topics alone.`,
  flags,
  problems: flagProblems,
  run,
});

async function run({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const { databaseUrl, brokers } = addressesOf(given);
  const times = {
    publishDeadlineMs: given['publish-deadline-ms'],
    idleTimeoutMs: given['idle-timeout-ms'],
    watchdogMs: given['watchdog-ms'],
  };
  const pool = openPool(databaseUrl, given.lanes, times);
  const transport = kafkaTransport({
    bootstrap: brokers,
    clientId: 'twiceproof-relay',
    ...kafkaSecurity(),
    maxRecordBytes: given['max-record-bytes'],
    // Before the relay gives up waiting for it: then it is known what was acknowledged, and only the rest is sent again.
    publishDeadlineMs: Math.round(0.9 * times.publishDeadlineMs),
  });
  const closeAll = async (): Promise<void> => {
    await Promise.all([transport.close(), pool.end()]);
  };
  let serving: Serving;
  try {
    serving = await serve({ given, pool, transport, times, signal, log: output.progress });
  } catch (error) {
    await closeAll();
    throw error;
  }
  output.ready({ admin: serving.admin, pid: process.pid });
  output.say(`relay: ${serving.admin}/metrics. Ctrl-C stops.`);
  if (!signal.aborted) await once(signal, 'abort');
  output.progress('stopping ...');
  const stopped = serving.stop().then(closeAll);
  if (await endsWithin(given['grace-ms'], stopped)) return EXIT.ok;
  output.progress('the batch under way was not finished in time; it is published again, with the same ids.');
  process.exit(EXIT.ok);
}

function addressesOf(given: RelayFlags): { databaseUrl: string; brokers: string[] } {
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

function openPool(url: string, lanes: number, { watchdogMs }: RelayTimes): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    // One for each batch under way, and one each for the four looks at the database and for /readyz.
    max: lanes + 5,
    connectionTimeoutMillis: patienceMs,
    // A server that has fallen silent must not hold a lane for ever; and after this time others end the connection anyway.
    query_timeout: watchdogMs,
    application_name: 'twiceproof-relay',
    keepAlive: true,
  });
  // An idle connection was lost; the pool opens another one when it needs it.
  pool.on('error', () => {});
  return pool;
}
