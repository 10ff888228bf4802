/**
 * What a batch of 500 new keys costs in inboxes of several sizes. They stand side by side on one server and take the batches
 * in turn, so that whatever drifts hits all of them alike and a ratio is of one run.
 */
import pg from 'pg';
import { createHistogram, percentileMs, record, type Histogram } from '../../load/histogram.ts';
import { rounded } from '../measure.ts';
import type { KeysScale } from './cases.ts';
import { acceptText, consumer, newIds } from './statement.ts';
import { sizeOf, type StoreSize, type StoreSpec } from './store.ts';

export interface Store extends StoreSpec {
  /** As in `partitioned-1000000`. */
  name: string;
  url: string;
  client: pg.Client;
}

export interface KeysRun extends StoreSize {
  /** Of the statement, for 500 keys, by the clock of the server. */
  insertP50Us: number;
  insertP99Us: number;
  /** With BEGIN and COMMIT, which waits for the disk, by our own clock. */
  transactionP99Us: number;
  /** For each key. */
  walBytes: number;
}

/** By the store. */
export type KeysRound = Record<string, KeysRun>;

const batchKeys = 500;
const warmBatches = 20;

export function storeSpecs({ partitioned, plain, random }: KeysScale): StoreSpec[] {
  return [
    ...partitioned.map((keys) => ({ kind: 'partitioned', keys }) as const),
    { kind: 'plain', keys: plain },
    { kind: 'random', keys: random },
  ];
}

export function storeName({ kind, keys }: StoreSpec): string {
  return `${kind}-${keys}`;
}

interface Measured extends Store {
  pipelined: pg.Client;
}

interface Tally {
  statement: Histogram;
  transaction: Histogram;
  walBytes: number;
}

export async function measureKeys(stores: readonly Store[], batches: number, signal: AbortSignal): Promise<KeysRound> {
  await using opened = new AsyncDisposableStack();
  const measured: Measured[] = [];
  for (const store of stores) {
    const pipelined = new pg.Client({ connectionString: store.url, application_name: 'bench', pipeline: true });
    pipelined.on('error', () => {}); // A server that is stopped ends it; the statement says so too.
    await pipelined.connect();
    opened.defer(async () => pipelined.end());
    measured.push({ ...store, pipelined });
  }
  for (let n = 0; n < warmBatches; n += 1) for (const store of measured) await accept(store, newTally());
  await stores[0]?.client.query('CHECKPOINT');
  const tallies = stores.map(newTally);
  for (let n = 0; n < batches; n += 1) {
    signal.throwIfAborted();
    // Each comes after each other as often.
    for (let k = 0; k < stores.length; k += 1) {
      const at = (n + k) % stores.length;
      await accept(measured[at]!, tallies[at]!);
    }
  }
  const runs = stores.map(
    async ({ name, client }, n) => [name, runOf(tallies[n]!, batches, await sizeOf(client))] as const,
  );
  return Object.fromEntries(await Promise.all(runs));
}

function newTally(): Tally {
  return { statement: createHistogram(), transaction: createHistogram(), walBytes: 0 };
}

/** Microseconds since 1970. */
const clock = { name: 'clock', text: 'SELECT (1e6 * extract(epoch FROM clock_timestamp()))::float8 AS us' };

/**
 * As a consumer sends it: planned once on a connection. Its time is from one look at the clock of the server to the next.
 * All three are on their way before the first is answered, as texts that are ready, so the server does not wait for us in
 * between: we collect garbage for some milliseconds now and then, and two of three batches above 7 ms by our own clock had
 * such a pause in them.
 */
async function accept({ kind, client, pipelined }: Measured, tally: Tally): Promise<void> {
  const ids = newIds(batchKeys, kind === 'random' ? 4 : 7);
  const values = [consumer, `{${ids.join()}}`, `{${[...ids.keys()].join()}}`];
  const wal = await walBytes(client);
  const began = performance.now();
  await pipelined.query('BEGIN');
  const [before, { rows }, after] = await Promise.all([
    pipelined.query<{ us: number }>(clock),
    pipelined.query<{ verdict: string }>({ name: 'accept', text: acceptText, values }),
    pipelined.query<{ us: number }>(clock),
  ]);
  await pipelined.query('COMMIT');
  record(tally.transaction, performance.now() - began);
  record(tally.statement, (after.rows[0]!.us - before.rows[0]!.us) / 1_000);
  tally.walBytes += (await walBytes(client)) - wal;
  if (rows.some(({ verdict }) => verdict !== 'first')) throw new Error('a new key was not accepted as the first');
}

/** Nobody else writes meanwhile, but for the server itself. */
export async function walBytes(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ bytes: string }>(
    "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS bytes",
  );
  return Number(rows[0]?.bytes);
}

function runOf({ statement, transaction, walBytes: wal }: Tally, batches: number, size: StoreSize): KeysRun {
  const us = (histogram: Histogram, share: number): number => Math.round(1_000 * percentileMs(histogram, share));
  return {
    ...size,
    insertP50Us: us(statement, 0.5),
    insertP99Us: us(statement, 0.99),
    transactionP99Us: us(transaction, 0.99),
    walBytes: rounded(wal / (batches * batchKeys), 1),
  };
}
