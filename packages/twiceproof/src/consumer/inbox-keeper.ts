import { setTimeout as delay } from 'node:timers/promises';
import { connectWithin } from '../answered.ts';
import { withDefaults } from '../defaults.ts';
import { TwiceproofError } from '../errors.ts';
import {
  addInboxPartition,
  forgetPartition,
  lockBounds,
  openInbox,
  raiseCeiling,
  raiseFloor,
  rangesTo,
  readInbox,
  type InboxPartition,
} from '../inbox/partitions.ts';
import { point } from '../points.ts';
import { quotedSchema } from '../schema-name.ts';
import type { PassResult, Service } from '../service.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { longestPauseMs } from '../within.ts';

export interface InboxKeeperOptions {
  /**
   * Of a user that owns the inbox, or is a member of the role that does: nobody else may attach or detach. It has to reach
   * the server itself, and not through a pooler in transaction mode: see `lockTimeoutMs`.
   */
  pool: Pool;
  /** How long ids are remembered, by the time inside them. See `redeliveryHorizon`; there is no safe default. */
  ttlMs: number;
  /** Defaults to `twiceproof`. */
  schema?: string;
  /** The width of a partition; it may change at any time. Defaults to 1 day. */
  partitionMs?: number;
  /** How far ahead partitions are made: nothing is accepted beyond. Defaults to 48 hours. */
  aheadMs?: number;
  /** Defaults to 60,000. */
  intervalMs?: number;
  /**
   * What does not get its lock in this time is tried again in the next pass. To detach is no work for a transaction, so for
   * that it is a setting of the session, which a pooler would hand on to others. Defaults to 2,000.
   */
  lockTimeoutMs?: number;
  /** The time, for tests. Defaults to the clock of the database, and for what is forgotten to our own if that is behind. */
  nowMs?(): number;
  onError?(error: unknown): void;
}

const hourMs = 3_600_000;
const defaults = { partitionMs: 24 * hourMs, aheadMs: 48 * hourMs, intervalMs: 60_000, lockTimeoutMs: 2_000 };
/** Up to here an insert costs the same. More is a wrong option, or a clock that has jumped. */
const maxPartitions = 1_024;
/** Each locks some tables, and a server has room for 6,400 locks by default. */
const partitionsInTransaction = 16;
const busyPauseMs = 200;
/** On a wire that has fallen silent. */
const statementWithinMs = 60_000;
/** Another keeper does the same at this moment, or somebody uses what we want to drop: the next pass sees. */
const anotherIsAtIt: ReadonlySet<unknown> = new Set(['40P01', '42P01', '42P07', '42809', '55000', '55006', '55P03']);

export interface InboxKeeper extends Service {
  /** How many partitions it has dropped. */
  dropped(): number;
}

/**
 * Makes partitions of the inbox ahead of time and drops those that are older than `ttlMs`. Several may run at once. Before
 * anything is accepted, passes must have been made until one was not `busy`.
 */
export function createInboxKeeper(options: InboxKeeperOptions): InboxKeeper {
  const { pool, ttlMs, schema, partitionMs, aheadMs, intervalMs, lockTimeoutMs } = withDefaults(defaults, options);
  quotedSchema(schema);
  if (!(ttlMs > 0 && ttlMs < Infinity && Number.isInteger(partitionMs) && partitionMs > 0)) {
    const given = `not ${ttlMs} and ${partitionMs}`;
    throw new TwiceproofError('TP_OPTION', `ttlMs is a number and partitionMs a whole one, above 0, ${given}`);
  }
  // A lock_timeout of 0 would be none.
  if (!(aheadMs > 0 && Math.round(lockTimeoutMs) > 0)) {
    const given = `not ${aheadMs} and ${lockTimeoutMs}`;
    throw new TwiceproofError('TP_OPTION', `aheadMs and lockTimeoutMs are numbers above 0, ${given}`);
  }
  if (!(intervalMs > 0 && intervalMs <= longestPauseMs)) {
    throw new TwiceproofError('TP_OPTION', `0 < intervalMs <= ${longestPauseMs} is needed, not ${intervalMs}`);
  }
  const localSettings = { lock_timeout: `${Math.round(lockTimeoutMs)}ms` };
  let dropped = 0;

  async function runOnce(): Promise<PassResult> {
    // What cannot be dropped must not keep the inbox from growing.
    const failure = await forget().then(
      () => undefined,
      (error: unknown) => ({ error }),
    );
    const result = await grow().catch((error: unknown) => {
      throw failure ? failure.error : error;
    });
    if (failure) throw failure.error;
    return result;
  }

  async function forget(): Promise<void> {
    const { nowMs } = await read();
    // One clock that has jumped ahead must not empty the inbox: what is old is old by both.
    const surelyMs = options.nowMs ? nowMs : Math.min(nowMs, Date.now());
    const floorMs = Math.max(0, Math.floor((surelyMs - ttlMs) / partitionMs) * partitionMs);
    const isRaised = await unlessAnotherIsAtIt(async () => {
      await inTransaction((tx) => openInbox(tx, floorMs, schema));
      await inTransaction((tx) => raiseFloor(tx, floorMs, schema));
    });
    if (!isRaised) return;
    await point('inbox:floor-raised');
    // Not the floor that we wanted: another may have raised it further.
    const { bounds, partitions } = await read();
    const forgotten = partitions.filter(({ toMs }) => bounds && toMs <= bounds.floorMs);
    // One that is half detached comes first: until it is done the server detaches no other.
    const turnOf = ({ state }: InboxPartition): number => (state === 'detaching' ? 0 : 1);
    for (const partition of forgotten.toSorted((a, b) => turnOf(a) - turnOf(b))) {
      // One that is in use must not keep the inbox from growing.
      const isGone = await unlessAnotherIsAtIt(async () => oneByOne(forgetPartition(partition, schema)));
      if (!isGone) continue;
      dropped += 1;
      await point('inbox:partition-dropped');
    }
  }

  async function grow(): Promise<PassResult> {
    for (;;) {
      let isEnough = false;
      const isGrown = await unlessAnotherIsAtIt(async () => {
        isEnough = await growSome();
      });
      if (!isGrown) return 'busy';
      if (isEnough) return 'idle';
    }
  }

  /** Whether it reaches far enough now. */
  async function growSome(): Promise<boolean> {
    const { ceilingMs, isEnough } = await inTransaction(async (tx) => {
      await lockBounds(tx, schema);
      const { nowMs, bounds, partitions } = await read(tx);
      const attached = partitions.filter(({ state }) => state === 'attached');
      // Somebody may have died between attaching one and raising the ceiling.
      const attachedMs = attached.reduce((end, { toMs }) => Math.max(end, toMs), bounds!.ceilingMs);
      // Before any of them is made, if only as an object: a wrong option may ask for billions.
      const needed = attached.length + Math.ceil((nowMs + aheadMs - attachedMs) / partitionMs);
      if (needed > maxPartitions) {
        const count = `${needed} partitions of the inbox would be needed`;
        throw new TwiceproofError('TP_OPTION', `${count}, of ${maxPartitions} at most; make partitionMs larger`);
      }
      const ranges = rangesTo(attachedMs, nowMs + aheadMs, partitionMs);
      const some = ranges.slice(0, partitionsInTransaction);
      for (const range of some) await addInboxPartition(tx, range, schema);
      return { ceilingMs: some.at(-1)?.toMs ?? attachedMs, isEnough: some.length === ranges.length };
    });
    await point('inbox:partitions-made');
    await inTransaction((tx) => raiseCeiling(tx, ceilingMs, schema));
    return isEnough;
  }

  async function read(tx?: Tx): ReturnType<typeof readInbox> {
    const found = await (tx ? readInbox(tx, schema) : inTransaction((own) => readInbox(own, schema)));
    return { ...found, nowMs: options.nowMs?.() ?? found.nowMs };
  }

  async function inTransaction<T>(work: (tx: Tx) => Promise<T>): Promise<T> {
    return transaction(pool, work, { localSettings });
  }

  async function oneByOne(statements: readonly string[]): Promise<void> {
    const client = await connectWithin(pool, statementWithinMs);
    let isClean = false;
    try {
      await client.query(`SET lock_timeout = ${Math.round(lockTimeoutMs)}`);
      for (const statement of statements) await client.query(statement);
      await client.query('RESET lock_timeout');
      isClean = true;
    } finally {
      client.release(!isClean);
    }
  }

  async function run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const result = await runOnce().catch((error: unknown) => {
        options.onError?.(error);
        return 'idle' as const;
      });
      const pauseMs = result === 'busy' ? Math.min(busyPauseMs, intervalMs) : intervalMs;
      await delay(pauseMs * (0.75 + Math.random() / 2), undefined, { signal }).catch(() => {});
    }
  }

  return { runOnce, run, dropped: () => dropped };
}

async function unlessAnotherIsAtIt(work: () => Promise<void>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    if (anotherIsAtIt.has((error as { code?: unknown } | null)?.code)) return false;
    throw error;
  }
}
