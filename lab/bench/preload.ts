/** Fills the idempotency table before anything is measured. */
import { statfsSync } from 'node:fs';
import pg from 'pg';
import { Refusal } from '@twiceproof/program';
import type { Scale } from './cases.ts';

/** As `--retention-hours` of Orders has it when nobody says otherwise. */
const retentionS = 72 * 3_600;
const keysInChunk = 200_000;
/** Of the table, its index, the answers and the WAL. */
const bytesForKey = 700;

export interface PreloadOptions {
  url: string;
  /** Of the cluster. */
  directory: string;
  scale: Scale;
  /** The time in which `expiringKeys` come to their end; a tenth of them has already. */
  expireWithinS: number;
  progress(text: string): void;
  signal: AbortSignal;
}

export async function preload({ url, directory, scale, progress, signal, ...options }: PreloadOptions): Promise<void> {
  const total = scale.keys + scale.expiringKeys;
  requireSpace(directory, total * bytesForKey);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    // Nobody is told that a key is there, so nothing has to be on the disk yet: the checkpoint below sees to it.
    await client.query("SET synchronous_commit = off; SET work_mem = '128MB'");
    for (let from = 1; from <= total; from += keysInChunk) {
      signal.throwIfAborted();
      const to = Math.min(total, from + keysInChunk - 1);
      await client.query(insertKeys, [from, to, total, scale.expiringKeys, retentionS, options.expireWithinS]);
      if (to === total || Math.ceil(to / keysInChunk) % 5 === 0) progress(`bench: ${millions(to)} M keys are in`);
    }
    await client.query('VACUUM (ANALYZE) twiceproof.idempotency_keys');
    await client.query('VACUUM (ANALYZE) twiceproof.answers');
    await client.query('CHECKPOINT');
  } finally {
    await client.end();
  }
}

/**
 * As a long life leaves them: keys of every age up to the retention, in the order of their age, because they are removed
 * in that order and what is removed gives its place to the newest (key-sweeper.pg.test.ts). The oldest $4 come to their
 * end in the next $6 seconds. They are UUIDv7, as those of the load are. Half of the answers stand in the key's row and
 * half in a row of their own: the two shapes of the edge keep them so.
 */
const insertKeys = `
  WITH aged AS (
    SELECT n, CASE WHEN n <= $4::float8 THEN $5::float8 + (0.1 - 1.1 * n / $4::float8) * $6::float8
      ELSE ($5::float8 - $6::float8) * ($3::float8 - n) / ($3::float8 - $4::float8) END AS age_s
    FROM generate_series($1::int, $2::int) n
  ), wanted AS (
    SELECT n, age_s, overlay(md5('preloaded ' || n)
      PLACING lpad(to_hex((1000 * (extract(epoch FROM now()) - age_s))::bigint), 12, '0') FROM 1)::uuid AS hash
    FROM aged
  ), answered AS (
    SELECT *, convert_to('{"order_id":"' || hash || '","status":"created"}', 'UTF8') AS body FROM wanted
  ), claimed AS (
    INSERT INTO twiceproof.idempotency_keys (key_hash, principal, operation, idem_key, request_hash, hash_version,
      response_code, response_body, render_version, created_at)
    SELECT hash, 'tenant-' || n % 100, 'orders.create', hash::text, sha256(body), 1,
      CASE WHEN n % 2 = 0 THEN 201 END, CASE WHEN n % 2 = 0 THEN body END, CASE WHEN n % 2 = 0 THEN 1 END,
      now() - age_s * interval '1 second'
    FROM answered ORDER BY n
    RETURNING id, key_hash, response_code
  )
  INSERT INTO twiceproof.answers (id, response_code, response_body, render_version)
  SELECT id, 201, convert_to('{"order_id":"' || key_hash || '","status":"created"}', 'UTF8'), 1
  FROM claimed WHERE response_code IS NULL`;

function requireSpace(directory: string, neededBytes: number): void {
  const { bavail, bsize } = statfsSync(directory);
  const gigabytes = (bytes: number): string => (bytes / 1e9).toFixed(1);
  if (bavail * bsize >= neededBytes) return;
  throw new Refusal(
    `The keys need ${gigabytes(neededBytes)} GB in ${directory}, and ${gigabytes(bavail * bsize)} GB are free.`,
    'Free some space there, or take --quick, which needs a tenth.',
  );
}

function millions(count: number): string {
  return (count / 1e6).toFixed(1);
}
