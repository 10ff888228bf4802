import { deferred } from '../deferred.ts';
import { keyHash, type Intent } from '../idempotency/intent.ts';
import { failureOf } from '../failure.ts';
import { busy, shareReply, type EdgeLimits, type Reply } from './reply.ts';

/** An intent that waits for its batch, or is in one. */
export interface Entry<C> {
  readonly hash: string;
  readonly intent: Intent;
  readonly command: C;
}

interface Waiting<C> extends Entry<C> {
  readonly exclusive: string | undefined;
  /** Equal keys of this process: they share what becomes of this one. */
  readonly followers: Follower<C>[];
  resolve(reply: Reply): void;
  reject(error: Error): void;
}

type Follower<C> = Omit<Waiting<C>, 'followers'>;

export interface QueueOptions<C> {
  /**
   * Commands with the same value never share a batch and keep the order in which they came: for effects that cannot
   * change one row twice in a statement. Defaults to none.
   */
  exclusive?: (command: C) => string;
  /** How many batches may be under way at once. More lanes make smaller batches: on 2 cores two were slower than one. Defaults to 1. */
  lanes?: number;
  /**
   * With batches so large that all clients are in one, database and process take turns instead of working at the same
   * time. Defaults to 96.
   */
  maxBatch?: number;
  /**
   * A batch begins at the soonest so many milliseconds after the one before it, unless a whole one waits: under load that
   * makes fewer and larger ones, which cost less. A request after which for so long none has come goes at once; a client
   * that asks one thing after the other gets no more answers than there are batches, and so does one value of
   * `exclusive`. Defaults to 0: a lane that becomes free takes what has gathered.
   */
  batchEveryMs?: number;
  /** How many may wait; beyond that a request is told to come again. Defaults to 10,000. */
  maxQueue?: number;
}

export const queueDefaults = { lanes: 1, maxBatch: 96, batchEveryMs: 0, maxQueue: 10_000 };

export type QueueSettings<C> = EdgeLimits & QueueOptions<C> & typeof queueDefaults;

/** By the hash of their keys, the oldest first. */
type Members<C> = Map<string, Waiting<C>>;

/**
 * Gathers intents and hands them to `runBatch` when a lane is free. An intent is in exactly one of three places: among
 * those that gather, in the batch of a lane, or among the followers of an equal one that is in either.
 *
 * Each batch has a Map of its own, which goes with it. In one Map for all, which would live as long as the process, V8
 * goes from table to table as entries come and go, and each table keeps the next one alive, with whatever was in it:
 * requests that were long answered became old, and were marked and swept in vain.
 */
export function createQueue<C>(
  settings: QueueSettings<C>,
  runBatch: (batch: readonly Entry<C>[]) => Promise<(Reply | Error | 'again')[]>,
) {
  let gathering: Members<C> = new Map();
  /** What each lane has under way. */
  const lanes = Array.from<Members<C> | undefined>({ length: settings.lanes });
  /** Values of `exclusive` that are in a batch now. */
  const taken = new Set<string>();
  let followers = 0;
  let isStarting = false;
  let pause: NodeJS.Timeout | undefined;
  let startedAt = -Infinity;

  /** Not async: to resolve one promise with another takes three turns more. */
  function add(intent: Intent, command: C): Promise<Reply> {
    if (gathering.size + followers >= settings.maxQueue) return Promise.resolve(busy);
    const { promise, resolve, reject } = deferred<Reply>();
    try {
      enqueue({ hash: keyHash(intent), intent, command, exclusive: settings.exclusive?.(command), resolve, reject });
      startLanesSoon();
    } catch (error) {
      reject(error);
    }
    return promise;
  }

  function enqueue(entry: Follower<C>): void {
    const leader = leaderOf(entry.hash);
    if (leader) {
      leader.followers.push(entry);
      followers += 1;
      return;
    }
    gathering.set(entry.hash, { ...entry, followers: [] });
  }

  function leaderOf(hash: string): Waiting<C> | undefined {
    let leader = gathering.get(hash);
    for (let n = 0; !leader && n < lanes.length; n += 1) leader = lanes[n]?.get(hash);
    return leader;
  }

  function untilDueMs(): number {
    return gathering.size < settings.maxBatch ? startedAt + settings.batchEveryMs - performance.now() : 0;
  }

  /** Before the next batch is due nobody looks whether there is one, but a whole one does not wait for that. */
  function startLanesSoon(): void {
    if (gathering.size === 0 || !lanes.includes(undefined)) return;
    const waitMs = untilDueMs();
    if (waitMs > 0) {
      pause ??= setTimeout(startLanes, waitMs);
    } else if (!isStarting) {
      isStarting = true;
      // When what the sockets have brought in this turn of the event loop is read: the first of them must not go alone.
      setImmediate(startLanes);
    }
  }

  function startLanes(): void {
    clearTimeout(pause);
    pause = undefined;
    isStarting = false;
    for (let lane = lanes.indexOf(undefined); lane >= 0 && gathering.size > 0; lane = lanes.indexOf(undefined)) {
      const [members, left] = takeBatch(gathering, taken, settings.maxBatch);
      if (members.size === 0) return;
      startedAt = performance.now();
      gathering = left;
      lanes[lane] = members;
      const batch = [...members.values()];
      runLane(lane, members, batch).catch((error: unknown) => {
        // runBatch never rejects; should it all the same, nobody may wait for ever.
        for (const entry of batch) settle(members, entry, error instanceof Error ? error : new Error(String(error)));
        startLanesSoon();
      });
    }
  }

  async function runLane(lane: number, members: Members<C>, batch: readonly Waiting<C>[]): Promise<void> {
    try {
      const settled = await runBatch(batch);
      batch.forEach((entry, n) => settle(members, entry, settled[n]!));
    } finally {
      lanes[lane] = undefined;
      for (const { exclusive } of batch) if (exclusive !== undefined) taken.delete(exclusive);
      // At once where it may be: while the database is at work, the answers are written.
      if (untilDueMs() > 0) startLanesSoon();
      else startLanes();
    }
  }

  function settle(members: Members<C>, entry: Waiting<C>, result: Reply | Error | 'again'): void {
    if (!members.delete(entry.hash)) return;
    followers -= entry.followers.length;
    if (result === 'again') {
      for (const each of [entry, ...entry.followers]) enqueue(each);
      return;
    }
    give(entry, result);
    for (const follower of entry.followers) {
      if (!(result instanceof Error) && result.outcome === 'answered') {
        follower.resolve(shareReply(result.answer, entry.intent, follower.intent, settings));
      } else if (isForAll(result)) {
        give(follower, result);
      } else {
        // It came to nothing, and the key is free: the next one's turn.
        enqueue(follower);
      }
    }
  }

  return { add };
}

/**
 * The oldest ones, at most one for each value of `exclusive`, and none whose value is taken; theirs are taken now. And those
 * that have to wait, in the order in which they came.
 */
function takeBatch<C>(
  gathering: Members<C>,
  taken: Set<string>,
  maxBatch: number,
): [batch: Members<C>, left: Members<C>] {
  const batch: Members<C> = new Map();
  const left: Members<C> = new Map();
  const passed = new Set<string>();
  for (const [hash, entry] of gathering) {
    const { exclusive } = entry;
    const mustWait = exclusive !== undefined && (taken.has(exclusive) || passed.has(exclusive));
    if (batch.size >= maxBatch || mustWait) {
      left.set(hash, entry);
      if (exclusive !== undefined) passed.add(exclusive);
      continue;
    }
    batch.set(hash, entry);
    if (exclusive !== undefined) taken.add(exclusive);
  }
  return [batch, left];
}

function give<C>({ resolve, reject }: Follower<C>, result: Reply | Error): void {
  if (result instanceof Error) reject(result);
  else resolve(result);
}

/** A key that is held elsewhere, or a database that is away: who comes next would wait as long again, in vain. */
function isForAll(result: Reply | Error): boolean {
  return result instanceof Error ? failureOf(result) !== 'unexpected' : result.outcome === 'busy';
}
