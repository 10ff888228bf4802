/**
 * Two ways to claim a key, on the same table and the same keys, by Zipf's law: INSERT ... ON CONFLICT, which the
 * library has, and an advisory lock for each key. As bare SQL, so that nothing of Orders covers the difference. A
 * closed loop: each connection claims as fast as it can.
 */
import { hash } from 'node:crypto';
import pg from 'pg';
import { createHistogram, record, summarize } from '../load/histogram.ts';
import { randomFrom, zipfFrom } from '../load/random.ts';
import { readCpu } from './cpu.ts';
import { rounded } from './measure.ts';

export const claimWays = ['onConflict', 'advisoryLock'] as const;
export type ClaimWay = (typeof claimWays)[number];

export interface ClaimRun {
  claimsPerSecond: number;
  p50Ms: number;
  p99Ms: number;
  /** Of Postgres, for each claim. */
  cpuUs: number;
  /** Of all claims: the key was there. */
  repeatedShare: number;
}

const connections = 16;
const keys = 1_000_000;
const zipfExponent = 1.1;

export async function measureClaims(
  way: ClaimWay,
  { url, postgres, seed, seconds }: { url: string; postgres: number; seed: number; seconds: number },
): Promise<ClaimRun> {
  const rank = zipfFrom(randomFrom(seed), keys, zipfExponent);
  const histogram = createHistogram();
  const read = () => readCpu({ postgres: { pids: [postgres], withChildren: true } });
  let repeated = 0;
  const loop = async (client: pg.Client, untilMs: number): Promise<void> => {
    while (performance.now() < untilMs) {
      // Another way or another round has other keys: the table keeps those of all.
      const key = hash('md5', `${way} ${seed} ${rank()}`, 'buffer');
      const began = performance.now();
      if ((await claim[way](client, key)) === 'repeated') repeated += 1;
      record(histogram, performance.now() - began);
    }
  };
  const clients = Array.from({ length: connections }, () => new pg.Client({ connectionString: url }));
  try {
    await Promise.all(clients.map(async (client) => client.connect()));
    const before = read();
    await Promise.all(clients.map(async (client) => loop(client, before.atMs + seconds * 1_000)));
    const after = read();
    const { count, p50Ms, p99Ms } = summarize(histogram);
    return {
      claimsPerSecond: rounded((1_000 * count) / (after.atMs - before.atMs), 1),
      p50Ms,
      p99Ms,
      cpuUs: rounded((after.us.postgres - before.us.postgres) / Math.max(1, count), 1),
      repeatedShare: rounded(repeated / Math.max(1, count), 3),
    };
  } finally {
    await Promise.all(clients.map(async (client) => client.end()));
  }
}

const insert = {
  name: 'claim',
  text: `INSERT INTO twiceproof.idempotency_keys (key_hash, principal, operation, idem_key, request_hash, hash_version,
      response_code, response_body, render_version)
    VALUES ($1::uuid, 'claims', 'orders.create', $1::uuid::text, sha256($1::text::bytea), 1, 201, '{}', 1)
    ON CONFLICT DO NOTHING`,
};
const select = {
  name: 'read',
  text: 'SELECT response_code, response_body FROM twiceproof.idempotency_keys WHERE key_hash = $1::uuid',
};
const lock = { name: 'lock', text: 'SELECT pg_advisory_xact_lock($1::bigint)' };

type Claim = (client: pg.Client, key: Buffer) => Promise<'first' | 'repeated'>;

/** One transaction each. What finds its key taken reads the answer. */
const claim: Record<ClaimWay, Claim> = {
  async onConflict(client, key) {
    const values = [key.toString('hex')];
    await client.query('BEGIN');
    const { rowCount } = await client.query({ ...insert, values });
    // In a statement of its own: in that of the claim, the row of another may not be visible.
    if (rowCount === 0) await client.query({ ...select, values });
    await client.query('COMMIT');
    return rowCount === 0 ? 'repeated' : 'first';
  },
  async advisoryLock(client, key) {
    const values = [key.toString('hex')];
    await client.query('BEGIN');
    await client.query({ ...lock, values: [key.readBigInt64BE(0)] });
    const { rowCount } = await client.query({ ...select, values });
    if (rowCount === 0) await client.query({ ...insert, values });
    await client.query('COMMIT');
    return rowCount === 0 ? 'first' : 'repeated';
  },
};
