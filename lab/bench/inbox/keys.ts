/**
 * What a batch of 500 new keys costs in inboxes of several sizes. They stand side by side on one server and take the batches
 * in turn, so that whatever drifts hits all of them alike and a ratio is of one run.
 */
import type pg from 'pg';
import { createHistogram, percentileMs, record, type Histogram } from '../../load/histogram.ts';
import { rounded } from '../measure.ts';
import type { KeysScale } from './cases.ts';
import { acceptText, consumer, newIds } from './statement.ts';
import { sizeOf, type StoreSize, type StoreSpec } from './store.ts';

export interface Store extends StoreSpec {
  /** As in `partitioned-1000000`. */
  name: string;
  client: pg.Client;
}

export interface KeysRun extends StoreSize {
  /** Of the statement, for 500 keys. */
  insertP50Us: number;
  insertP99Us: number;
  /** With BEGIN and COMMIT, which waits for the disk. */
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

interface Tally {
  statement: Histogram;
  transaction: Histogram;
  walBytes: number;
}

export async function measureKeys(stores: readonly Store[], batches: number, signal: AbortSignal): Promise<KeysRound> {
  for (let n = 0; n < warmBatches; n += 1) for (const store of stores) await accept(store, newTally());
  await stores[0]?.client.query('CHECKPOINT');
  const tallies = stores.map(newTally);
  for (let n = 0; n < batches; n += 1) {
    signal.throwIfAborted();
    // Each comes after each other as often.
    for (let k = 0; k < stores.length; k += 1) {
      const at = (n + k) % stores.length;
      await accept(stores[at]!, tallies[at]!);
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

/** As a consumer sends it: planned once on a connection. */
async function accept({ kind, client }: Store, tally: Tally): Promise<void> {
  const ids = newIds(batchKeys, kind === 'random' ? 4 : 7);
  const contents = ids.map((_, n) => String(n));
  const wal = await walBytes(client);
  const began = performance.now();
  await client.query('BEGIN');
  const sent = performance.now();
  const { rows } = await client.query<{ verdict: string }>({
    name: 'accept',
    text: acceptText,
    values: [consumer, ids, contents],
  });
  const answered = performance.now();
  await client.query('COMMIT');
  record(tally.transaction, performance.now() - began);
  record(tally.statement, answered - sent);
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
