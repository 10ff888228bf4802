/**
 * `npm run bench -- inbox-keys --keys=100000000`: the inbox at a size that takes long to fill. The data stays in its
 * directory, and a fill that was broken off is gone on with. Each call adds the keys of its own measurement.
 */
import { existsSync, readdirSync, statfsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import pg from 'pg';
import { startPostgres, type PostgresServer } from '@twiceproof/infra/postgres';
import { Refusal, type Output } from '@twiceproof/program';
import { runProgram } from '../children.ts';
import { serverSettings } from '../server.ts';
import type { InboxTargets } from './bars.ts';
import { measureAndJudge } from './bench.ts';
import { scales, type InboxScale, type KeysScale } from './cases.ts';
import type { InboxRound, InboxRounds } from './inbox.ts';
import { measureKeys, storeName, storeSpecs, type Store } from './keys.ts';
import { bytesOfStores, fillStore, type StoreSpec } from './store.ts';

export interface KeysCall {
  command: string;
  keys: number;
  /** In each table and round. */
  batches?: number;
  /** Where the cluster is kept. */
  data: string;
  seed: number;
  targets: InboxTargets;
  /** Where the result goes; nowhere without one. */
  directory: string | undefined;
}

const smallKeys = 1_000_000;
const mostRandomKeys = 20_000_000;
/** As `max_wal_size` allows; and as much again for what the measurement adds and an index needs while it is built. */
const walBytes = 8e9;

export function keysScale(keys: number, batches: number = scales.full.keys.batches): KeysScale {
  const partitioned = [Math.min(smallKeys, Math.floor(keys / 2)), keys];
  return { partitioned, plain: keys, random: Math.min(mostRandomKeys, Math.floor(keys / 5)), batches };
}

/** On the disk: the tables, a tenth more, and the WAL, which is less where there are few keys. */
export function neededBytes(stores: readonly StoreSpec[]): number {
  const tables = 1.1 * bytesOfStores(stores);
  return Math.round(tables + Math.min(walBytes, 2 * tables) + 300e6);
}

/** Answers the exit code. */
export async function benchKeys(call: KeysCall, output: Output, signal: AbortSignal): Promise<number> {
  const { keys, batches, data } = call;
  const scale: InboxScale = { ...scales.full, keys: keysScale(keys, batches) };
  const stores = storeSpecs(scale.keys);
  const space = spaceIn(data);
  const needed = neededBytes(stores);
  const sizes = stores.map((store) => `${store.keys.toLocaleString('en')} ${store.kind}`).join(', ');
  output.progress(`bench: keys: ${sizes}`);
  output.progress(
    `bench: it needs ${inGB(needed)} GB in ${data}, of which ${inGB(space.usedBytes)} GB are there; ${inGB(space.freeBytes)} GB are free`,
  );
  requireSpace(needed, space, data);
  return measureAndJudge({ ...call, scale }, output, signal, async () =>
    measureIn(data, scale, output.progress, signal),
  );
}

async function measureIn(
  data: string,
  scale: InboxScale,
  progress: (text: string) => void,
  signal: AbortSignal,
): Promise<InboxRounds> {
  const postgres = await startPostgres({ settings: serverSettings, directory: data, signal });
  // A statement may fill a partition for a minute: it is broken off, and the partition is not there.
  const stop = (): void => {
    postgres.stop().catch(() => {});
  };
  signal.addEventListener('abort', stop);
  const stores: Store[] = [];
  try {
    for (const spec of storeSpecs(scale.keys)) {
      signal.throwIfAborted();
      const { client, url } = await openStore(postgres, spec);
      stores.push({ ...spec, name: storeName(spec), url, client });
      await fillStore(client, spec, { url, signal, progress: (text) => progress(`bench: ${text}`) });
    }
    const rounds: InboxRound[] = [];
    for (let round = 1; round <= scale.rounds; round += 1) {
      const keys = await measureKeys(stores, scale.keys.batches, signal);
      rounds.push({ keys });
      const each = Object.entries(keys).map(([name, run]) => `${name} ${run.insertP99Us} us`);
      progress(`bench: round ${round} of ${scale.rounds}, p99 of 500: ${each.join(', ')}`);
    }
    return { rounds, versions: { postgres: postgres.version } };
  } finally {
    signal.removeEventListener('abort', stop);
    await Promise.all(stores.map(async ({ client }) => client.end().catch(() => {})));
    // What it has filled is wanted again.
    await postgres.stop();
    await postgres.close();
  }
}

/** A database for each, which is made when it is not there yet. */
async function openStore(postgres: PostgresServer, spec: StoreSpec): Promise<{ client: pg.Client; url: string }> {
  const name = storeName(spec).replace('-', '_');
  const main = await connect(postgres.url);
  try {
    const { rowCount } = await main.query('SELECT FROM pg_database WHERE datname = $1', [name]);
    if (rowCount === 0) await main.query(`CREATE DATABASE ${name}`);
  } finally {
    await main.end();
  }
  const url = new URL(postgres.url);
  url.pathname = `/${name}`;
  const client = await connect(url.href);
  // It says that there is nothing to do, if there is not; and one of the tables may stand in the place of another.
  const { rowCount } = await client.query("SELECT WHERE to_regclass('bench_fill') IS NOT NULL");
  if (rowCount === 0) await runProgram('packages/twiceproof/src/cli/main.ts', ['migrate'], { DATABASE_URL: url.href });
  return { client, url: url.href };
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'bench' });
  // A server that is stopped ends its connections; whoever needs one of them learns it from the statement.
  client.on('error', () => {});
  await client.connect();
  return client;
}

export interface Space {
  usedBytes: number;
  freeBytes: number;
}

function spaceIn(directory: string): Space {
  let existing = directory;
  while (!existsSync(existing)) existing = dirname(existing);
  const { bavail, bsize } = statfsSync(existing);
  return { usedBytes: existsSync(directory) ? bytesIn(directory) : 0, freeBytes: bavail * bsize };
}

function bytesIn(directory: string): number {
  const files = readdirSync(directory, { withFileTypes: true, recursive: true }).filter((entry) => entry.isFile());
  return files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
}

export function requireSpace(needed: number, { usedBytes, freeBytes }: Space, directory: string): void {
  if (freeBytes + usedBytes >= needed) return;
  throw new Refusal(
    `The keys need ${inGB(needed)} GB in ${directory}; ${inGB(usedBytes)} GB are used there, and ${inGB(freeBytes)} GB are free.`,
    'Free some space, name another directory with --data, or take fewer --keys.',
  );
}

function inGB(bytes: number): string {
  return (bytes / 1e9).toFixed(1);
}
