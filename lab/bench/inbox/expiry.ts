/**
 * How long the keeper takes to forget a day, and who waits for that. A day goes by its floor, a detach and a drop, which is
 * the same work however many keys it has; a DELETE of as many is beside it.
 */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { rounded } from '../measure.ts';
import type { Database, World } from '../relay/world.ts';
import type { ExpiryScale } from './cases.ts';
import { startAccepting, type Accepted } from './accepting.ts';
import { walBytes } from './keys.ts';
import {
  dayMs,
  daysAround,
  firstIdOf,
  forgetTexts,
  keeperLockTimeoutMs,
  partitionName,
  raiseFloorText,
  type PartitionState,
  type Range,
} from './statement.ts';
import { addDay, fillSettings, setBounds } from './store.ts';

export interface Forgetting {
  /**
   * Until it is out of the inbox: the floor, and the detach. The fastest of the repetitions, as the next: it is a few
   * milliseconds, and what takes longer has waited for the disk behind somebody else. The WAL is the least of them: what
   * is more are whole pages after the checkpoint, or somebody else's.
   */
  detachMs: number;
  /** Until its files are gone too, which the file system takes its time for, and for which nobody waits. */
  expiryMs: number;
  expiryWalBytes: number;
  /** A DELETE of as many, once. What it leaves is not even vacuumed. */
  deleteMs: number;
  deleteWalBytes: number;
}

export interface Beside {
  expiryMs: number;
  /** Looks, 50 a second, that found an accept waiting for a lock. */
  lockWaits: number;
  /** How often the keeper had to try, because of the one that stays open. */
  passes: number;
  /** The longest accept while the day went, and in the time before that; each from the moment at which it was due. */
  longestAcceptMs: number;
  longestBeforeMs: number;
  accepts: number;
  /** Batches that met the end of a partition (23514), and were done again. */
  refused: number;
  messagesPerSecond: number;
}

export interface ExpiryRound {
  small: Forgetting;
  large: Forgetting;
  /** While messages are accepted. */
  loaded: Beside;
  /** The same, beside a transaction that stays open and has read the inbox. */
  open: Beside;
}

export interface ExpiryCall {
  world: World;
  scale: ExpiryScale;
  signal: AbortSignal;
}

const nextPassAfterMs = 200;
const oldestDays = 30;

export async function runExpiry({ world, scale, signal }: ExpiryCall): Promise<ExpiryRound> {
  const { smallDay, largeDay, repeats } = scale;
  const database = await world.database({ shape: 'ours', shards: 1 }, 0);
  try {
    const { client } = database;
    // In the order in which they go: one that does not count, those that are timed, two under load, two by DELETE.
    const areLarge = Array.from({ length: 2 * repeats }, (_, n) => isLargeTurn(n));
    const turns = areLarge.map((isLarge) => (isLarge ? largeDay : smallDay));
    const days = await fill(client, [smallDay, ...turns, largeDay, largeDay, smallDay, largeDay], signal);
    await forget(client, days.shift()!);
    const small: Expired[] = [];
    const large: Expired[] = [];
    for (const [n, day] of days.splice(0, turns.length).entries()) {
      signal.throwIfAborted();
      (areLarge[n] ? large : small).push(await expire(client, day));
    }
    const [loadedDay, openDay, smallToDelete, largeToDelete] = days as [Range, Range, Range, Range];
    const loaded = await beside(database, loadedDay, scale, false, signal);
    const open = await beside(database, openDay, scale, true, signal);
    return {
      small: forgetting(small, await timed(client, async () => deleteDay(client, smallToDelete))),
      large: forgetting(large, await timed(client, async () => deleteDay(client, largeToDelete))),
      loaded,
      open,
    };
  } finally {
    await database.drop();
  }
}

/**
 * Whose turn it is, as often the one as the other. Not strictly in turn: the rows of the catalog that belong to some days in
 * a row share a page, and whoever changes it first after a checkpoint writes all of it to the WAL (Thue and Morse's order).
 */
export function isLargeTurn(n: number): boolean {
  let ones = 0;
  for (let rest = n; rest > 0; rest >>= 1) ones += rest & 1;
  return ones % 2 === 1;
}

/** Long ago, one day after another; and those from now on, which are empty. On the disk, as old days are. */
async function fill(client: pg.Client, sizes: readonly number[], signal: AbortSignal): Promise<Range[]> {
  await client.query(fillSettings);
  const nowMs = Date.now();
  const all = daysAround(nowMs - oldestDays * dayMs, nowMs + dayMs);
  for (const [n, day] of all.entries()) {
    signal.throwIfAborted();
    await addDay(client, day, sizes[n] ?? 0);
  }
  await setBounds(client, all);
  await client.query('VACUUM (ANALYZE) twiceproof.inbox');
  await client.query('CHECKPOINT');
  await client.query('RESET ALL');
  return all.slice(0, sizes.length);
}

interface Timed {
  ms: number;
  walBytes: number;
}

async function timed(client: pg.Client, work: () => Promise<unknown>): Promise<Timed> {
  const wal = await walBytes(client);
  const began = performance.now();
  await work();
  return { ms: performance.now() - began, walBytes: (await walBytes(client)) - wal };
}

interface Expired extends Timed {
  detachMs: number;
}

async function expire(client: pg.Client, day: Range): Promise<Expired> {
  const began = performance.now();
  let detachMs = 0;
  const onDetached = (): void => {
    detachMs = performance.now() - began;
  };
  const whole = await timed(client, async () => forget(client, day, { onDetached }));
  return { ...whole, detachMs };
}

function forgetting(expiries: readonly Expired[], deleted: Timed): Forgetting {
  return {
    detachMs: rounded(Math.min(...expiries.map(({ detachMs }) => detachMs)), 1),
    expiryMs: rounded(Math.min(...expiries.map(({ ms }) => ms)), 1),
    expiryWalBytes: Math.min(...expiries.map((each) => each.walBytes)),
    deleteMs: rounded(deleted.ms, 1),
    deleteWalBytes: deleted.walBytes,
  };
}

/** As the keeper does it, and again as often as it would. Answers how many passes that took. */
async function forget(
  client: pg.Client,
  day: Range,
  { signal, onDetached }: { signal?: AbortSignal; onDetached?(): void } = {},
): Promise<number> {
  await client.query(raiseFloorText, [firstIdOf(day.toMs)]);
  await client.query(`SET lock_timeout = ${keeperLockTimeoutMs}`);
  for (let passes = 1; ; passes += 1) {
    signal?.throwIfAborted();
    try {
      for (const text of forgetTexts(day, await stateOf(client, day))) {
        if (text.startsWith('DROP')) onDetached?.();
        await client.query(text);
      }
      await client.query('RESET lock_timeout');
      return passes;
    } catch (error) {
      const { code } = error as { code?: string };
      // It did not get its lock; or the one before still stands in the way of its end.
      if (code !== '55P03' && code !== '55000') throw error;
      await delay(nextPassAfterMs);
    }
  }
}

async function stateOf(client: pg.Client, day: Range): Promise<PartitionState> {
  const { rows } = await client.query<{ state: PartitionState }>(
    `SELECT CASE WHEN c.oid IS NULL THEN 'gone' WHEN i.inhdetachpending THEN 'detaching'
       WHEN i.inhrelid IS NULL THEN 'detached' ELSE 'attached' END AS state
     FROM (SELECT to_regclass($1)::oid AS oid) c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid`,
    [partitionName(day)],
  );
  return rows[0]!.state;
}

async function deleteDay(client: pg.Client, { fromMs, toMs }: Range): Promise<void> {
  await client.query('DELETE FROM twiceproof.inbox WHERE msg_id >= $1 AND msg_id < $2', [
    firstIdOf(fromMs),
    firstIdOf(toMs),
  ]);
}

async function beside(
  { url, client }: Database,
  day: Range,
  { beforeS, openS }: ExpiryScale,
  isOpen: boolean,
  signal: AbortSignal,
): Promise<Beside> {
  const accepting = await startAccepting(url, day);
  const other = new pg.Client({ connectionString: url, application_name: 'bench-open' });
  await other.connect();
  try {
    await delay(1_000 * beforeS, undefined, { signal });
    await client.query('CHECKPOINT');
    const beganMs = performance.now();
    const reader = isOpen ? readFor(other, 1_000 * openS) : Promise.resolve();
    if (isOpen) await accepting.untilSeen(2);
    const forgotAt = performance.now();
    accepting.countLockWaits();
    const passes = await forget(client, day, { signal });
    const endedAt = performance.now();
    const lockWaits = accepting.lockWaits();
    await reader;
    await accepting.untilSeen(2);
    const accepts = await accepting.stop();
    return { ...summary(accepts, { beganMs, forgotAt, endedAt }), passes, refused: accepting.refused(), lockWaits };
  } finally {
    await accepting.stop();
    await other.end();
  }
}

/** Reads every partition, and stays open. */
async function readFor(client: pg.Client, ms: number): Promise<void> {
  await client.query('BEGIN');
  await client.query('SELECT FROM twiceproof.inbox ORDER BY msg_id LIMIT 1');
  await delay(ms);
  await client.query('COMMIT');
}

export function summary(
  accepts: readonly Accepted[],
  { beganMs, forgotAt, endedAt }: { beganMs: number; forgotAt: number; endedAt: number },
): Omit<Beside, 'passes' | 'refused' | 'lockWaits'> {
  const longest = (those: readonly Accepted[]): number => rounded(Math.max(0, ...those.map(({ ms }) => ms)), 1);
  // One that was due or under way at either end counts: it may have waited.
  const during = accepts.filter(({ atMs, ms }) => atMs + ms >= forgotAt && atMs <= endedAt);
  // When they were answered: when they were due says nothing about the server.
  const [firstAt, lastAt] = [accepts[0]!, accepts.at(-1)!].map(({ atMs, ms }) => atMs + ms);
  const messages = accepts.reduce((sum, each) => sum + each.messages, 0);
  return {
    expiryMs: rounded(endedAt - forgotAt, 1),
    longestAcceptMs: longest(during),
    longestBeforeMs: longest(accepts.filter(({ atMs, ms }) => atMs + ms < beganMs)),
    accepts: during.length,
    messagesPerSecond: Math.round((1_000 * messages) / Math.max(1, lastAt! - firstAt!)),
  };
}
