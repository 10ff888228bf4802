/** `npm start`: the whole path with gentle traffic, and how it is. Whatever is killed comes back. */
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { beginRun, recordAddresses, type Run } from '@twiceproof/infra/run';
import { keptDirectory, refuseSecondKeeper } from '@twiceproof/infra/servers';
import { EXIT, main, type Context, type FlagSpecs, type Output } from '@twiceproof/program';
import { createMeters } from './meters.ts';
import { watchInvariant } from './invariant.ts';
import { openStatus, type Status, type StatusSource } from './status.ts';
import { serveStatus } from './status-server.ts';
import { startSystem } from './system.ts';
import { createScreen, plainLine } from './terminal.ts';
import { startTraffic } from './traffic.ts';

const flags = {
  rate: { type: 'integer', min: 1, max: 20_000, default: 20, help: 'requests/s of the demo traffic, retries included' },
  brokers: { type: 'choice', choices: ['1', '3'], default: '3', help: 'Kafka brokers' },
  keep: { type: 'boolean', help: 'keep the data for the next start with --keep' },
  'admin-port': { type: 'integer', default: 0, min: 0, max: 65_535, help: '/status, /metrics; 0 for a free one' },
} as const satisfies FlagSpecs;

const upWithinMs = 90_000;
const refreshEveryMs = 1_000;
const plainEveryMs = 5_000;

await main({
  name: 'start',
  summary: 'Postgres, Kafka, two each of orders, relay and payments, gentle traffic, and how it all is.',
  flags,
  run: start,
});

async function start({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  if (given.keep) refuseSecondKeeper();
  const run = await beginRun(given.keep ? 'keep' : 'up');
  try {
    await live(run, given, output, signal);
  } catch (error) {
    // What fails because it was told to stop has not failed.
    if (!signal.aborted) {
      const logs = await run.end({ keepLogs: true });
      output.progress(`the logs are in ${logs}`);
      throw error;
    }
  }
  await run.end();
  output.progress('stopped; nothing is left running.');
  return EXIT.ok;
}

async function live(
  run: Run,
  given: Context<typeof flags>['flags'],
  output: Output,
  signal: AbortSignal,
): Promise<void> {
  await using made = new AsyncDisposableStack();
  const brokers = given.brokers === '1' ? 1 : 3;
  const kept = given.keep ? keptDirectory('system') : undefined;
  const system = await startSystem({ run, brokers, keptDirectory: kept, signal, progress: output.progress });
  made.defer(async () => system.close());
  await system.untilUp(upWithinMs);
  const traffic = startTraffic(system, given.rate, join(kept ?? run.directory, 'ledgers'));
  made.defer(async () => traffic.stop());
  const status = openStatus(createMeters(system.programs, system.kept), () => [...system.kept, traffic.kept]);
  const server = await serveStatus(status, given['admin-port']);
  made.defer(() => server.close());

  const addresses = { databaseUrl: system.databases.orders, kafkaBrokers: system.kafka.bootstrap };
  recordAddresses(run, addresses);
  const { doors, databases } = system;
  output.ready({
    ...addresses,
    paymentsUrl: databases.payments,
    ...doors,
    admin: server.address,
    directory: run.directory,
    pid: process.pid,
  });
  output.say(banner(system.doors.http, databases, addresses.kafkaBrokers, server.address));
  const stopping = new AbortController();
  const judging = watchInvariant(system, traffic.ledgers, status.tell, AbortSignal.any([signal, stopping.signal]));
  made.defer(async () => {
    stopping.abort();
    await judging;
    // In the order of the path, so that what is kept is whole.
    await traffic.stop();
    await system.stopPrograms();
  });
  await showUntil(status, output, signal);
  output.progress('stopping ...');
}

/** One who looks sees it every second; a log gets a line every few. */
async function showUntil(status: StatusSource, output: Output, signal: AbortSignal): Promise<void> {
  const isLooking = process.stdout.isTTY && !output.json;
  const screen = createScreen(
    (text) => process.stdout.write(text),
    () => process.stdout.columns,
  );
  const show = (now: Status): void => {
    if (isLooking) screen(now);
    else if (output.json) output.emit(now);
    else output.say(plainLine(now));
  };
  let shownAt = -Infinity;
  while (!signal.aborted) {
    const now = await status.refresh();
    if (isLooking || performance.now() - shownAt >= plainEveryMs) {
      shownAt = performance.now();
      show(now);
    }
    await delay(refreshEveryMs, undefined, { signal }).catch(() => {});
  }
}

function banner(
  http: readonly string[],
  { orders, payments }: { orders: string; payments: string },
  kafkaBrokers: string,
  admin: string,
): string {
  return `
twiceproof: the whole path is up.

  orders    ${http.join(', ')}
  database  ${orders}
            ${payments}
  brokers   ${kafkaBrokers}
  status    ${admin}/status, ${admin}/metrics`;
}
