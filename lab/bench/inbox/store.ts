/**
 * Inboxes of a given size, filled by SQL in the order of time, as a life of eight days leaves them. A fill that was broken
 * off goes on where it was: a partition is there when it is full, and the other tables say how many keys they have.
 */
import pg from 'pg';
import { attachText, dayMs, daysAround, firstIdOf, partitionName, type Range } from './statement.ts';

/** `partitioned` is the inbox as it is; the others stand in one table, `random` with ids of version 4. */
export type StoreKind = 'partitioned' | 'plain' | 'random';

export interface StoreSpec {
  kind: StoreKind;
  keys: number;
}

export interface FillOptions {
  /** Of the same database: days are filled two at a time. */
  url: string;
  signal: AbortSignal;
  progress(text: string): void;
}

const ageMs = 8 * dayMs;
const aheadMs = 2 * dayMs;
const chunk = 250_000;

/** Bytes on the disk for each key, with some room. Measured: 77 in the heap, 50 in the index, or 65 in one of UUIDv4. */
const bytesForKey: Record<StoreKind, number> = { partitioned: 130, plain: 130, random: 150 };

export function bytesOfStores(stores: readonly StoreSpec[]): number {
  return stores.reduce((sum, { kind, keys }) => sum + keys * bytesForKey[kind], 0);
}

/** Days without keys, from now on: what the keeper makes at first. */
export async function openToday(client: pg.Client): Promise<void> {
  const nowMs = Date.now();
  for (const day of daysAround(nowMs, nowMs + aheadMs)) await addDay(client, day, 0);
  await setBounds(client, daysAround(nowMs, nowMs + aheadMs));
}

export async function setBounds(client: pg.Client, days: readonly Range[]): Promise<void> {
  await client.query(
    `INSERT INTO twiceproof.inbox_bounds (floor, ceiling) VALUES ($1, $2)
     ON CONFLICT (only_row) DO UPDATE SET floor = excluded.floor, ceiling = excluded.ceiling`,
    [firstIdOf(days[0]!.fromMs), firstIdOf(days.at(-1)!.toMs)],
  );
}

/** In one transaction, so that it is there as a whole or not at all. The index comes last, which is faster, and as dense. */
export async function addDay(client: pg.Client, day: Range, keys: number, until: number = day.toMs): Promise<void> {
  const name = partitionName(day);
  await client.query('BEGIN');
  try {
    await client.query(`CREATE TABLE ${name} (LIKE twiceproof.inbox INCLUDING DEFAULTS INCLUDING CONSTRAINTS)`);
    if (keys > 0)
      await client.query(...insertKeys(name, 7, { fromMs: day.fromMs, toMs: until, first: 0, keys, of: keys }));
    await client.query(`ALTER TABLE ${name} ADD PRIMARY KEY (msg_id, consumer)`);
    // As the library has it: there is nothing in it that ANALYZE should read.
    const alter = ['msg_id', 'consumer', 'content_hash', 'processed_at'].map(
      (each) => `ALTER ${each} SET STATISTICS 0`,
    );
    await client.query(`ALTER TABLE ${name} ${alter.join(', ')}`);
    await client.query(attachText(day));
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {});
    throw error;
  }
}

interface Keys extends Range {
  first: number;
  keys: number;
  /** Of so many, evenly spread over the time. */
  of: number;
}

function insertKeys(table: string, version: 4 | 7, { fromMs, toMs, first, keys, of }: Keys): [string, unknown[]] {
  const text = (id: string): string => `INSERT INTO ${table} (msg_id, consumer, content_hash, processed_at)
    SELECT ${id}, 'payments', n, now() FROM generate_series($1::bigint, $2::bigint) AS n`;
  const series = [first, first + keys - 1];
  if (version === 4) return [text('gen_random_uuid()'), series];
  // A second less at each end: two readings of the clock are taken for an id.
  const time = 'to_timestamp(($3::float8 + 1000 + ($4::float8 - $3::float8 - 2000) * n / $5::float8) / 1000)';
  return [text(`uuidv7(${time} - clock_timestamp())`), [...series, fromMs, toMs, of]];
}

/** Nobody is told that a key is there, so nothing has to be on the disk yet: a checkpoint at the end sees to it. */
export const fillSettings = "SET synchronous_commit = off; SET maintenance_work_mem = '256MB'; SET TimeZone = 'UTC'";

/** Into a database that has the tables of the library. */
export async function fillStore(client: pg.Client, { kind, keys }: StoreSpec, options: FillOptions): Promise<void> {
  await client.query(fillSettings);
  const beganMs = await began(client);
  if (kind === 'partitioned') await fillDays(client, keys, beganMs, options);
  else await fillTable(client, { kind, keys }, beganMs, options);
  await client.query('VACUUM (ANALYZE) twiceproof.inbox');
  await client.query('CHECKPOINT');
  await client.query('RESET ALL');
}

/** When the fill was begun for the first time, by which the days are the same ones when it is resumed. */
async function began(client: pg.Client): Promise<number> {
  await client.query('CREATE TABLE IF NOT EXISTS bench_fill (began_ms bigint NOT NULL, filled bigint NOT NULL)');
  await client.query('INSERT INTO bench_fill SELECT $1, 0 WHERE NOT EXISTS (SELECT FROM bench_fill)', [Date.now()]);
  const { rows } = await client.query<{ began_ms: string }>('SELECT began_ms FROM bench_fill');
  return Number(rows[0]?.began_ms);
}

async function fillDays(client: pg.Client, keys: number, beganMs: number, options: FillOptions): Promise<void> {
  const { url, signal, progress } = options;
  const span = { fromMs: beganMs - ageMs, toMs: beganMs };
  const days = daysAround(span.fromMs, Date.now() + aheadMs);
  const { rows } = await client.query<{ name: string }>(
    "SELECT relid::regclass::text AS name FROM pg_partition_tree('twiceproof.inbox') WHERE isleaf",
  );
  const known = new Set(rows.map(({ name }) => name));
  const isThere = (day: Range): boolean => known.has(partitionName(day).replaceAll('"', ''));
  let filled = days.filter(isThere).reduce((sum, day) => sum + keysOfDay(day, span, keys), 0);
  progress(`found ${filled.toLocaleString('en')} of ${keys.toLocaleString('en')} keys in partitions`);
  const queue = days.filter((day) => !isThere(day));
  const work = async (own: pg.Client): Promise<void> => {
    for (let day = queue.shift(); day; day = queue.shift()) {
      signal.throwIfAborted();
      const count = keysOfDay(day, span, keys);
      await addDay(own, day, count, Math.min(day.toMs, beganMs));
      filled += count;
      if (count > 0) progress(`${millions(filled)} M of ${millions(keys)} M keys in partitions`);
    }
  };
  const second = new pg.Client({ connectionString: url, application_name: 'bench' });
  second.on('error', () => {}); // A server that is stopped ends it; the statement says so too.
  await second.connect();
  try {
    await second.query(fillSettings);
    await Promise.all([client, second].map(work));
  } finally {
    await second.end();
  }
  await setBounds(client, days);
}

/** Evenly over the time, so that the whole is `keys` up to rounding. */
export function keysOfDay(day: Range, { fromMs, toMs }: Range, keys: number): number {
  const at = (ms: number): number =>
    Math.round((keys * (Math.min(Math.max(ms, fromMs), toMs) - fromMs)) / (toMs - fromMs));
  return at(day.toMs) - at(day.fromMs);
}

async function fillTable(
  client: pg.Client,
  { kind, keys }: StoreSpec,
  beganMs: number,
  { signal, progress }: FillOptions,
): Promise<void> {
  await client.query(`DO $$ BEGIN
    IF (SELECT relkind = 'p' FROM pg_class WHERE oid = 'twiceproof.inbox'::regclass) THEN
      ALTER TABLE twiceproof.inbox RENAME TO inbox_partitioned;
      ALTER INDEX twiceproof.inbox_pkey RENAME TO inbox_partitioned_pkey;
      CREATE TABLE twiceproof.inbox (LIKE twiceproof.inbox_partitioned INCLUDING ALL);
      INSERT INTO twiceproof.inbox_bounds (floor, ceiling)
      VALUES ('00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    END IF; END $$`);
  const { rows } = await client.query<{ filled: string }>('SELECT filled FROM bench_fill');
  const span = { fromMs: beganMs - ageMs, toMs: beganMs, of: keys };
  const found = Number(rows[0]?.filled);
  progress(`found ${found.toLocaleString('en')} of ${keys.toLocaleString('en')} keys in one table (${kind})`);
  for (let first = found; first < keys; first += chunk) {
    signal.throwIfAborted();
    const count = Math.min(chunk, keys - first);
    await client.query('BEGIN');
    await client.query(...insertKeys('twiceproof.inbox', kind === 'random' ? 4 : 7, { ...span, first, keys: count }));
    await client.query('UPDATE bench_fill SET filled = $1', [first + count]);
    await client.query('COMMIT');
    const isRound = (first + count) % 1_000_000 === 0 || first + count === keys;
    if (isRound) progress(`${millions(first + count)} M of ${millions(keys)} M keys in one table (${kind})`);
  }
}

export interface StoreSize {
  keys: number;
  /** For each key. */
  heapBytes: number;
  indexBytes: number;
}

export async function sizeOf(client: pg.Client): Promise<StoreSize> {
  const { rows } = await client.query<{ keys: string; heap: string; index: string }>(
    `SELECT (SELECT count(*) FROM twiceproof.inbox) AS keys, sum(pg_relation_size(relid)) AS heap,
       sum(pg_indexes_size(relid)) AS index
     FROM (SELECT 'twiceproof.inbox'::regclass AS relid UNION SELECT relid FROM pg_partition_tree('twiceproof.inbox')) t`,
  );
  const keys = Number(rows[0]?.keys);
  const each = (bytes: string | undefined): number => Math.round((10 * Number(bytes)) / Math.max(1, keys)) / 10;
  return { keys, heapBytes: each(rows[0]?.heap), indexBytes: each(rows[0]?.index) };
}

export function millions(count: number): string {
  return (count / 1e6).toFixed(1);
}
