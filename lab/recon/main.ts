/** `npm run recon`: intents against orders, messages, charges and effects. Exit code 0 only if every invariant holds. */
import { accessSync, constants, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { EXIT, main, Refusal, type Context, type FlagSpecs } from '@twiceproof/program';
import { createAdminServer, listenAdmin } from '@twiceproof/program/admin';
import { noConfig, readConfig, type Config } from './config.ts';
import { reconcile, type ReconOptions } from './recon.ts';
import { tableOf } from './report.ts';
import { watchRecon } from './watch.ts';

const flags = {
  ledger: { type: 'string', help: 'of the load generator; several files with commas between' },
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'the Postgres that holds orders and outbox' },
  'payments-url': { type: 'string', help: 'the Postgres that holds charges and inbox; by default the same' },
  brokers: { type: 'string', env: 'KAFKA_BROKERS', help: 'host:port of one or more brokers, with commas between' },
  topics: { type: 'string', default: 'order.events', help: 'with commas between; each is read whole' },
  tenant: { type: 'string', help: 'whose orders they must be; by default the one that the ledger names' },
  config: { type: 'string', help: 'a file that names tables of your own (lab/recon/README.md)' },
  'horizon-s': {
    type: 'integer',
    min: 0,
    max: 86_400,
    help: 'for a system that runs: what is younger is not judged as lost; by default everything is judged',
  },
  'timeout-s': { type: 'integer', default: 3_600, min: 1, max: 86_400, help: 'after which it could not decide' },
  ids: { type: 'integer', default: 20, min: 0, max: 1_000_000, help: 'how many of each delta are named' },
  out: { type: 'string', help: 'directory for verdict.json, and messages.tsv (the topic) if anything is wrong' },
  'admin-port': { type: 'integer', min: 0, max: 65_535, help: '/metrics while it runs; 0 for a free one' },
} as const satisfies FlagSpecs;

await main({
  name: 'recon',
  summary:
    'Compares what was asked for with what was done, in every table and on the whole topic, and names each difference.',
  flags,
  problems: ({ ledger, config, brokers, ...given }) => [
    ...(ledger === undefined && config === undefined
      ? ['--ledger is missing (or a --config that selects intents)']
      : []),
    ...(given['database-url'] === undefined ? ['--database-url is missing'] : []),
    ...(brokers === undefined ? ['--brokers is missing'] : []),
  ],
  run: recon,
});

async function recon({ flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const options = await optionsFrom(given, signal);
  const watch = watchRecon((line) => output.progress(`recon: ${line}`));
  const admin = createAdminServer({ metrics: watch.metrics, ready: async () => {} });
  try {
    if (given['admin-port'] !== undefined) output.ready({ admin: await listenAdmin(admin, given['admin-port']) });
    if (given.out !== undefined) mkdirSync(given.out, { recursive: true });
    const report = await reconcile({ ...options, onProgress: watch.progress });
    if (given.out !== undefined) {
      writeFileSync(join(given.out, 'verdict.json'), `${JSON.stringify(report, null, 2)}\n`);
    }
    output.say(tableOf(report));
    output.emit(report);
    return report.verdict === 'clean' ? EXIT.ok : EXIT.failed;
  } finally {
    watch.stop();
    admin.close();
    admin.closeAllConnections();
  }
}

async function optionsFrom(given: Context<typeof flags>['flags'], signal: AbortSignal): Promise<ReconOptions> {
  const config = given.config === undefined ? noConfig : await configFrom(given.config);
  const ledgers = namesIn(given.ledger ?? '');
  if ((ledgers.length === 0) === (config.sets.intents === undefined)) {
    throw new Refusal('Intents come either from --ledger or from the configuration.', 'Give one of them.', EXIT.usage);
  }
  ledgers.forEach(requireReadable);
  const databaseUrl = given['database-url']!;
  const horizonS = given['horizon-s'];
  return {
    ledgers,
    databaseUrl,
    paymentsUrl: given['payments-url'] ?? databaseUrl,
    brokers: given.brokers!,
    topics: namesIn(given.topics),
    tenant: given.tenant,
    idsShown: given.ids,
    config,
    messagesTo: given.out === undefined ? undefined : join(given.out, 'messages.tsv'),
    horizonMs: horizonS === undefined ? undefined : horizonS * 1_000,
    signal: AbortSignal.any([signal, AbortSignal.timeout(given['timeout-s'] * 1_000)]),
  };
}

function requireReadable(path: string): void {
  try {
    accessSync(path, constants.R_OK);
  } catch (cause) {
    const why = (cause as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : 'it cannot be read';
    throw new Refusal(`--ledger=${path}: ${why}.`, 'Name what `npm run load -- --ledger` has written.', EXIT.usage, {
      cause,
    });
  }
}

async function configFrom(path: string): Promise<Config> {
  const config = await readConfig(path);
  if (!('problems' in config)) return config;
  throw new Refusal(`${path}: ${config.problems.join('\n  ')}`, 'See lab/recon/README.md.', EXIT.usage);
}

function namesIn(text: string): string[] {
  return text.split(',').flatMap((name) => name.trim() || []);
}
