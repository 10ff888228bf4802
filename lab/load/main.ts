/** `npm run load`: seeded requests with retries against running orders processes. */
import { randomInt } from 'node:crypto';
import { EXIT, main, Refusal, type Context, type FlagSpecs, type Output } from '@twiceproof/program';
import { createAdminServer, listenAdmin } from '@twiceproof/program/admin';
import { createMetrics } from '@twiceproof/program/metrics';
import { noLedger, openLedger, type Ledger } from './ledger.ts';
import type { Second } from './meter.ts';
import { defaults, problemsOf, targetsOf, type LoadOptions } from './options.ts';
import { resultOf, writeResult, type LoadResult } from './result.ts';
import { runLoad, Unreachable } from './run.ts';

const flags = {
  url: {
    type: 'string',
    help: `http://host:port, several with commas between; without it and --grpc, ${defaults.urls.join()}`,
  },
  grpc: { type: 'string', help: 'host:port, several with commas between; with --url, requests go to both doors' },
  rate: { type: 'integer', min: 1, max: 1_000_000, default: defaults.rate, help: 'requests/s, retries included' },
  duration: { type: 'integer', min: 1, max: 86_400, default: defaults.durationS, help: 'seconds' },
  warmup: { type: 'integer', min: 0, max: 86_399, default: 0, help: 'seconds whose latencies do not count' },
  'retry-rate': {
    type: 'number',
    default: defaults.retryRate,
    min: 0,
    max: 1,
    help: 'share that is retried 1 to 3 times',
  },
  'status-rate': {
    type: 'number',
    default: defaults.statusRate,
    min: 0,
    max: 1,
    help: 'share that changes the status of an order of this run',
  },
  hot: { type: 'number', default: defaults.hot, min: 0, max: 10, help: 'Zipf exponent of the retried keys' },
  keys: { type: 'integer', min: 1, max: 4_294_967_295, default: defaults.keys, help: 'size of the key space' },
  'key-version': {
    type: 'choice',
    choices: ['4', '7'],
    default: '4',
    help: 'of the UUIDs that are the keys; with 7 the seed gives all of a key but its time',
  },
  clients: { type: 'integer', min: 1, max: 20_000, default: defaults.clients, help: 'connections in all' },
  seed: { type: 'integer', min: 0, max: 4_294_967_295, help: 'otherwise a random one, which is printed' },
  spacing: {
    type: 'choice',
    choices: ['constant', 'jitter', 'poisson'],
    default: defaults.spacing,
    help: 'between intents',
  },
  'timeout-ms': { type: 'integer', min: 1, max: 3_600_000, default: defaults.timeoutMs, help: 'for each request' },
  'max-waiting': {
    type: 'integer',
    min: 1,
    max: 10_000_000,
    default: defaults.maxWaiting,
    help: 'requests that may wait for a connection; the rest is dropped',
  },
  settle: {
    type: 'integer',
    min: 0,
    max: 86_400,
    default: defaults.settleS,
    help: 'seconds after the schedule in which keys of an unknown outcome are asked again',
  },
  'principal-header': { type: 'string', default: defaults.principalHeader, help: 'whose keys they are' },
  ledger: { type: 'string', help: 'a new file for every invocation and its outcome' },
  'admin-port': {
    type: 'integer',
    default: 0,
    min: 0,
    max: 65_535,
    help: '/metrics, /livez, /readyz; 0 for a free one',
  },
  out: { type: 'string', help: 'directory for result.json, histograms.json and plot.svg' },
} as const satisfies FlagSpecs;

await main({
  name: 'load',
  summary: 'Requests on a schedule, whatever the answers; the same seed gives the same requests.',
  flags,
  run: load,
});

async function load({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const options = optionsFrom(given);
  const ledger = given.ledger === undefined ? noLedger : openNewLedger(given.ledger);
  const metrics = createMetrics();
  let isReady = false;
  const admin = createAdminServer({
    metrics,
    ready: async () => {
      if (!isReady) throw new Error('it is not connected yet');
    },
  });
  try {
    const adminUrl = await listenAdmin(admin, given['admin-port']);
    const run = await runLoad(options, {
      signal,
      ledger,
      metrics,
      onReady() {
        isReady = true;
        const { urls, grpc, rate, seed } = options;
        output.ready({ urls, grpc, rate, seed, admin: adminUrl, pid: process.pid });
        const targets = targetsOf(options).join(', ');
        output.progress(`load: ${rate} requests/s to ${targets}, seed ${seed}, ${adminUrl}/metrics`);
      },
      onSecond: (second) => liveLine(second, output),
    }).catch(explain);
    const result = resultOf(run, ['npm run load --', ...process.argv.slice(2)].join(' '));
    if (given.out !== undefined) writeResult(given.out, run, result);
    output.emit({ result });
    output.say(summary(result, given.out));
    return result.valid && result.answers.different === 0 ? EXIT.ok : EXIT.failed;
  } finally {
    ledger.close();
    admin.close();
    admin.closeAllConnections();
  }
}

function optionsFrom(given: Context<typeof flags>['flags']): LoadOptions {
  const options: LoadOptions = {
    ...defaults,
    urls: given.url === undefined && given.grpc !== undefined ? [] : listOf(given.url, defaults.urls),
    grpc: listOf(given.grpc, defaults.grpc),
    rate: given.rate,
    durationS: given.duration,
    warmupS: given.warmup,
    retryRate: given['retry-rate'],
    statusRate: given['status-rate'],
    hot: given.hot,
    keys: given.keys,
    clients: given.clients,
    seed: given.seed ?? randomInt(2 ** 32),
    bornAtMs: given['key-version'] === '7' ? Date.now() : undefined,
    spacing: given.spacing,
    timeoutMs: given['timeout-ms'],
    maxWaiting: given['max-waiting'],
    settleS: given.settle,
    principalHeader: given['principal-header'],
  };
  const problems = problemsOf(options);
  if (problems.length > 0) throw new Refusal(problems.join('\n  '), 'See: npm run load -- --help', EXIT.usage);
  return options;
}

function listOf(text: string | undefined, otherwise: readonly string[]): readonly string[] {
  return text?.split(',').map((one) => one.trim()) ?? otherwise;
}

function openNewLedger(path: string): Ledger {
  try {
    return openLedger(path);
  } catch (cause) {
    const exists = (cause as NodeJS.ErrnoException).code === 'EEXIST';
    const todo = exists
      ? 'It may be evidence: name another file, or remove it.'
      : 'Name a file in a directory of yours.';
    const why = exists ? 'there is one already' : String(cause);
    throw new Refusal(`The ledger ${path} cannot be made: ${why}.`, todo, EXIT.usage, { cause });
  }
}

function explain(cause: unknown): never {
  if (!(cause instanceof Unreachable)) throw cause;
  const todo = 'Start the programs that --url and --grpc name.';
  throw new Refusal(`Cannot connect: ${cause.message}`, todo, EXIT.environment, { cause });
}

function liveLine(second: Second, output: Output): void {
  output.emit(second);
  if (output.json) return;
  const { sent, answered, errors, waiting, inFlight, latency } = second;
  output.progress(
    `${String(second.second).padStart(5)} s  sent ${sent}  answered ${answered}  errors ${errors}` +
      `  p50 ${latency.p50Ms} ms  p99 ${latency.p99Ms} ms  backlog ${waiting} + ${inFlight} in flight`,
  );
}

function summary(result: LoadResult, directory: string | undefined): string {
  const { counts, latency, answers, rate, cost, lateness } = result;
  const row = (name: string, { count, p50Ms, p90Ms, p99Ms, p999Ms, maxMs }: LoadResult['lateness']): string =>
    name.padEnd(10) + [count, p50Ms, p90Ms, p99Ms, p999Ms, maxMs].map((value) => String(value).padStart(12)).join('');
  const reasons = Object.entries({ ...counts.byStatus, ...counts.byReason });
  return [
    '',
    `${'ms'.padEnd(10)}${['count', 'p50', 'p90', 'p99', 'p99.9', 'max'].map((name) => name.padStart(12)).join('')}`,
    ...Object.entries(latency).map(([name, one]) => row(name, one)),
    row('lateness', lateness),
    '',
    `rate      wanted ${rate.wanted}/s, sent ${rate.sent}/s, answered ${rate.answered}/s`,
    `requests  ${counts.sent} sent for ${counts.intents} intents, ${counts.retries} of them with a key sent before`,
    `outcomes  ok ${counts.ok}, fail ${counts.fail}, unknown ${counts.unknown} (cut on purpose ${counts.cut}); ` +
      reasons.map(([name, count]) => `${name}: ${count}`).join(', '),
    `unsent    expired ${counts.expired}, dropped ${counts.dropped}, skipped ${counts.skipped}; ` +
      `unsettled ${result.unsettled} keys`,
    `answers   ${answers.compared} compared with the first for their key, ${answers.different} differ`,
    `cost      ${cost.cpuUsPerRequest} us of CPU a request, ${cost.cores} cores`,
    `seed      ${result.options.seed}`,
    ...answers.samples.map(({ key, first, now }) => `differs   key ${key}: first ${first}, then ${now}`),
    ...result.problems.map((problem) => `NOT VALID ${problem}`),
    ...(directory === undefined ? [] : [`written   ${directory}`]),
  ].join('\n');
}
