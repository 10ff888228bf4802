/**
 * `npm test`: the checks, then every test of the default tier on servers that are started and stopped
 * here. `npm run test:deep`: what takes longer. A file's name says what it needs and where it belongs:
 *   x.test.ts nothing · x.pg.test.ts Postgres · x.kafka.test.ts a cluster · x.chaos.test.ts servers of its
 *   own, which it kills · x.alone.test.ts servers of its own, and both cores · with `.deep` before `.test.ts`:
 *   the deep tier
 */
import { randomBytes } from 'node:crypto';
import { existsSync, globSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { spawnSync } from 'node:child_process';
import { stateDirectory } from '@twiceproof/infra/directories';
import { startServers, type Servers } from '@twiceproof/infra/servers';
import { removeTestDatabases } from '@twiceproof/infra/testing';
import { beginRun } from '@twiceproof/infra/run';
import { EXIT, main, Refusal, type Context, type FlagSpecs } from '@twiceproof/program';
import { runFiles, type FileResult } from './test-run.ts';
import { summary, type Step } from './test-summary.ts';

const root = dirname(import.meta.dirname);
/** The test of the runner, which must not judge itself. */
const ownTest = 'tools/test-run.test.ts';
const flags = {
  deep: { type: 'boolean', help: 'the deep tier instead of the default one' },
} as const satisfies FlagSpecs;

await main({
  name: 'test',
  summary: 'Checks and tests, on real servers. Names of test files, or parts of them, run only those.',
  words: '[part of a file name ...]',
  flags,
  run: test,
});

async function test({ flags: { deep }, words, output, signal }: Context<typeof flags>): Promise<number> {
  const all = globSync('{packages,infra,apps,lab,examples,tools}/**/*.test.ts', {
    cwd: root,
    exclude: ['**/node_modules/**', '**/dist/**'],
  }).sort();
  const ofTier = all.filter((file) => isDeep(file) === deep);
  const asked = words.map((word) => relative(root, resolve(word)));
  const matching = all.filter((file) => [...words, ...asked].some((word) => file.includes(word)));
  // A file that is named in full is run, whatever it is called.
  const named = words.filter((word) => existsSync(join(root, word)) && statSync(join(root, word)).isFile());
  const files = words.length === 0 ? ofTier : [...new Set([...matching, ...named])];
  if (files.length === 0) {
    throw new Refusal(
      `No test file matches ${words.join(' ')}.`,
      'Give a part of a path, such as `transports/kafka`.',
      EXIT.usage,
    );
  }

  const steps: Step[] = [];
  const step = (name: string, ...script: string[]): void => {
    if (signal.aborted) return;
    const began = Date.now();
    const { status } = spawnSync(process.execPath, script, { cwd: root, stdio: ['ignore', 2, 2] });
    steps.push({ name, passed: status === 0, ms: Date.now() - began });
  };
  if (words.length === 0 && !deep) step('check', 'tools/check.ts');
  // Not by the runner itself: one that hears no failure would hear none of its own.
  if (files.includes(ownTest)) step('test runner', '--test', '--test-reporter=dot', ownTest);
  const results = await runOnServers(
    files.filter((file) => file !== ownTest),
    // The longest takes about a third of it.
    { progress: output.progress, signal, fileTimeoutMs: (deep ? 20 : 15) * 60_000 },
  );
  if (words.length === 0 && deep) step('plants', 'tools/plants.ts');

  const report = summary({ results, steps, notRun: all.filter((file) => !files.includes(file)), deep });
  output.say(report.text);
  output.emit(report.data);
  if (signal.aborted) output.say('interrupted: what is missing above was not run');
  return report.data.ok && !signal.aborted ? EXIT.ok : EXIT.failed;
}

function isDeep(file: string): boolean {
  return file.endsWith('.deep.test.ts');
}

function needs(file: string): string {
  return /\.(pg|kafka|chaos|alone)(?:\.deep)?\.test\.ts$/.exec(file)?.[1] ?? 'nothing';
}

/**
 * Two files at a time, which keep both cores busy between them: most of a trial is waiting. Those that put the whole system
 * under load run alone: timeouts that fire for want of CPU would tell nothing.
 */
async function runOnServers(
  files: readonly string[],
  limits: { progress: (text: string) => void; signal: AbortSignal; fileTimeoutMs: number },
): Promise<FileResult[]> {
  const { progress, signal } = limits;
  const of = (...kinds: string[]): string[] => files.filter((file) => kinds.includes(needs(file)));
  const options = { root, ...limits };
  // Hundreds of processes compile the same files: that is a third of what it takes to start one.
  const base = { NODE_COMPILE_CACHE: join(stateDirectory(), 'compile-cache') };
  const results = await runFiles(of('nothing'), { ...options, concurrency: 2, env: base });
  if (of('pg', 'kafka').length > 0 && !signal.aborted) {
    const run = await beginRun('test');
    const scope = randomBytes(4).toString('hex');
    let servers: Servers | undefined;
    try {
      servers = await startServers({
        run,
        brokers: 3,
        keep: false,
        databaseUrl: process.env['DATABASE_URL'],
        kafkaBrokers: process.env['KAFKA_BROKERS'],
        progress,
        signal,
      });
      progress(`testing on ${servers.descriptions.postgres} and ${servers.descriptions.kafka}`);
      const env = {
        ...base,
        DATABASE_URL: servers.databaseUrl,
        KAFKA_BROKERS: servers.kafkaBrokers,
        TWICEPROOF_TEST_SCOPE: scope,
      };
      results.push(...(await runFiles(of('pg'), { ...options, concurrency: 2, env })));
      results.push(...(await runFiles(of('kafka'), { ...options, concurrency: 2, env })));
      await removeTestDatabases(servers.databaseUrl, scope);
    } finally {
      await servers?.close();
      await run.end();
    }
  }
  results.push(...(await runFiles(of('chaos'), { ...options, concurrency: 2, env: base })));
  results.push(...(await runFiles(of('alone'), { ...options, concurrency: 1, env: base })));
  return results;
}
