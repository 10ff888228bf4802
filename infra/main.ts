/** `npm run infra`: the servers, piece by piece: without the programs that `npm start` runs on them. */
import { existsSync } from 'node:fs';
import { relative } from 'node:path';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { EXIT, main, Refusal, type Context, type FlagSpecs, type Output } from '@twiceproof/program';
import { checkout } from './directories.ts';
import { kafkaAdmin } from './kafka-admin.ts';
import { signalIfStillRunning, waitUntilEnded } from './processes.ts';
import { beginRun, endRun, listRuns, recordAddresses, sweepDeadRuns, type Run } from './run.ts';
import { refuseSecondKeeper, keptDirectory, startServers, withoutPassword, type Servers } from './servers.ts';

const flags = {
  brokers: { type: 'choice', choices: ['1', '3'], default: '3', help: 'Kafka brokers' },
  keep: { type: 'boolean', help: 'keep the data for the next start with --keep' },
  'postgres-port': { type: 'integer', min: 1, max: 65_535, help: 'a port of your choice; otherwise a free one' },
  'kafka-port': { type: 'integer', min: 1, max: 65_533, help: 'of the first broker; otherwise free ones' },
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'use this Postgres instead of our own' },
  'kafka-brokers': { type: 'string', env: 'KAFKA_BROKERS', help: 'use this Kafka instead of our own (host:port,...)' },
} as const satisfies FlagSpecs;

/** What our programs publish to. The relay creates no topics, and without a Kafka of one's own one has no tool for it. */
const topics = { 'order.events': { partitions: 3 } };

/** The runs that `down` stops; tests have others. */
const ours = ['up', 'keep'];

await main({
  name: 'infra',
  summary: 'Real Postgres and real Kafka on loopback, without docker.',
  commands: {
    up: 'start both and stay until Ctrl-C or `down`',
    down: 'stop what `up` has started from this checkout, wherever it runs',
    status: 'what runs, and where',
  },
  flags,
  run: async (context) => {
    if (context.command === 'up') return up(context);
    if (context.command === 'down') return down(context.output);
    return status(context.output);
  },
});

async function up(context: Context<typeof flags>): Promise<number> {
  const { flags: given, output, signal } = context;
  if (given.keep) refuseSecondKeeper();
  refuseOverlappingPorts(given['postgres-port'], given['kafka-port'], Number(given.brokers));
  const run = await beginRun(given.keep ? 'keep' : 'up');
  let servers: Servers | undefined;
  let failure: unknown;
  try {
    output.progress('starting Postgres and Kafka ...');
    servers = await startServers({
      run,
      brokers: given.brokers === '1' ? 1 : 3,
      keep: given.keep,
      databaseUrl: given['database-url'],
      kafkaBrokers: given['kafka-brokers'],
      postgresPort: given['postgres-port'],
      kafkaPort: given['kafka-port'],
      progress: output.progress,
      signal,
    });
    const { databaseUrl, kafkaBrokers } = servers;
    if (!given['kafka-brokers']) await createTopics(kafkaBrokers);
    const shown = given['database-url'] ? withoutPassword(databaseUrl) : databaseUrl;
    recordAddresses(run, { databaseUrl: shown, kafkaBrokers });
    output.ready({ databaseUrl, kafkaBrokers, directory: run.directory, pid: process.pid });
    output.say(banner(servers, shown, run, given.keep));
    await stayUp(servers, signal);
  } catch (error) {
    failure = error;
  }
  if (signal.aborted) output.progress('stopping ...');
  await servers?.close();
  const logs = await run.end({ keepLogs: failure !== undefined && !signal.aborted });
  if (signal.aborted) output.progress('stopped; nothing is left running.');
  // What fails because it was told to stop has not failed.
  else if (failure) throw withLogsAt(failure, run.directory, logs);
  return EXIT.ok;
}

async function createTopics(kafkaBrokers: string): Promise<void> {
  const admin = kafkaAdmin(kafkaBrokers);
  try {
    for (const [name, options] of Object.entries(topics)) {
      await admin.createTopic(name, options).catch(async (error: unknown) => {
        // In data that was kept it is there already.
        if (!(await admin.countReplicas(name).catch(() => 0))) throw error;
      });
    }
  } finally {
    await admin.close();
  }
}

/** The error names logs of the run, which is gone: they were moved. */
function withLogsAt(failure: unknown, from: string, to: string | undefined): unknown {
  if (failure instanceof Error && to) failure.message = failure.message.replaceAll(from, to);
  return failure;
}

function refuseOverlappingPorts(postgres: number | undefined, kafka: number | undefined, brokers: number): void {
  if (postgres === undefined || kafka === undefined || postgres < kafka || postgres >= kafka + brokers) return;
  throw new Refusal(
    `Port ${postgres} is asked for twice: Kafka takes ${kafka} to ${kafka + brokers - 1}.`,
    'Choose ports that do not overlap.',
    EXIT.usage,
  );
}

/** Until we are told to stop, or a server of ours ends by itself. */
async function stayUp(servers: Servers, signal: AbortSignal): Promise<void> {
  const stopped = signal.aborted ? Promise.resolve() : once(signal, 'abort');
  for (;;) {
    if (await Promise.race([stopped.then(() => true), delay(500, false)])) return;
    const dead = servers.dead();
    if (dead.length > 0 && !signal.aborted) {
      throw new Refusal(
        `Ended unexpectedly: ${dead.join(', ')}.`,
        'Start again; the log says why it ended.',
        EXIT.failed,
      );
    }
  }
}

function banner({ kafkaBrokers, descriptions }: Servers, databaseUrl: string, run: Run, keep: boolean): string {
  const here = (path: string): string => (path.startsWith(checkout) ? relative(checkout, path) : path);
  const elsewhere = run.openDirectory.startsWith(run.directory) ? '' : ` and ${run.openDirectory}`;
  return `
twiceproof: the servers are up.

  ${descriptions.postgres}
      DATABASE_URL=${databaseUrl}
  ${descriptions.kafka}
      KAFKA_BROKERS=${kafkaBrokers}

  Logs   ${here(run.directory)}
  Data   ${keep ? `${here(keptDirectory())} (kept)` : `there too${elsewhere}; both go at the end (--keep keeps the data)`}
  Next   \`npm run orders\` and \`npm run relay\` in other terminals, with these two set
  Stop   Ctrl-C here, or \`npm run infra -- down\` in another terminal
`;
}

async function down(output: Output): Promise<number> {
  await sweepDeadRuns();
  const runs = listRuns().filter(({ alive, purpose }) => alive && ours.includes(purpose));
  for (const { owner, directory, id } of runs) {
    output.progress(`stopping ${id} (process ${owner.pid}) ...`);
    signalIfStillRunning(owner, 'SIGTERM');
    if (await waitUntilEnded([owner], 30_000)) continue;
    output.progress(`${id} did not stop within 30 s; ending it by force.`);
    signalIfStillRunning(owner, 'SIGKILL');
    await endRun(directory);
  }
  output.emit({ stopped: runs.map(({ id }) => id) });
  output.say(runs.length === 0 ? 'Nothing was running.' : `Stopped: ${runs.map(({ id }) => id).join(', ')}.`);
  return EXIT.ok;
}

async function status(output: Output): Promise<number> {
  await sweepDeadRuns();
  const runs = listRuns().map(({ id, purpose, owner, directory, addresses }) => ({
    id,
    purpose,
    pid: owner.pid,
    directory,
    ...addresses,
  }));
  const kept = existsSync(keptDirectory()) ? keptDirectory() : undefined;
  output.emit({ runs, kept });
  if (runs.length === 0)
    output.say('Nothing is running from this checkout. `npm start` or `npm run infra -- up` starts it.');
  for (const { id, pid, directory, ...addresses } of runs) {
    output.say(`${id}  process ${pid}  ${relative(checkout, directory)}`);
    for (const [name, address] of Object.entries(addresses))
      if (name !== 'purpose') output.say(`    ${name}: ${address}`);
  }
  if (kept) output.say(`Kept data: ${relative(checkout, kept)} (delete it when nothing runs, to begin anew)`);
  return EXIT.ok;
}
