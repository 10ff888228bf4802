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
  /** How many may wait; beyond that a request is told to come again. Defaults to 10,000. */
  maxQueue?: number;
}

export const queueDefaults = { lanes: 1, maxBatch: 96, maxQueue: 10_000 };

export type QueueSettings<C> = EdgeLimits & QueueOptions<C> & typeof queueDefaults;

/**
 * Gathers intents and hands them to `runBatch` when a lane is free. An intent is in exactly one of three places: in
 * `queue`, in the batch of a lane, or among the followers of an equal one that is in either.
 */
export function createQueue<C>(
  settings: QueueSettings<C>,
  runBatch: (batch: readonly Entry<C>[]) => Promise<(Reply | Error | 'again')[]>,
) {
  const queue: Waiting<C>[] = [];
  const leaders = new Map<string, Waiting<C>>();
  /** Values of `exclusive` that are in a batch now. */
  const taken = new Set<string>();
  let followers = 0;
  let busyLanes = 0;
  let isStarting = false;

  function add(intent: Intent, command: C): Promise<Reply> {
    if (queue.length + followers >= settings.maxQueue) return Promise.resolve(busy);
    const { promise, resolve, reject } = deferred<Reply>();
    enqueue({ hash: keyHash(intent), intent, command, exclusive: settings.exclusive?.(command), resolve, reject });
    startLanesSoon();
    return promise;
  }

  function enqueue(entry: Follower<C>): void {
    const leader = leaders.get(entry.hash);
    if (leader) {
      leader.followers.push(entry);
      followers += 1;
      return;
    }
    const waiting = { ...entry, followers: [] };
    leaders.set(entry.hash, waiting);
    queue.push(waiting);
  }

  /** When what the sockets have brought in this turn of the event loop is read: the first of them must not go alone. */
  function startLanesSoon(): void {
    if (isStarting || busyLanes >= settings.lanes) return;
    isStarting = true;
    setImmediate(() => {
      isStarting = false;
      startLanes();
    });
  }

  function startLanes(): void {
    while (busyLanes < settings.lanes && queue.length > 0) {
      const batch = takeBatch(queue, taken, settings.maxBatch);
      if (batch.length === 0) return;
      busyLanes += 1;
      runLane(batch).catch((error: unknown) => {
        // runBatch never rejects; should it all the same, nobody may wait for ever.
        for (const entry of batch) settle(entry, error instanceof Error ? error : new Error(String(error)));
      });
    }
  }

  async function runLane(batch: readonly Waiting<C>[]): Promise<void> {
    try {
      const settled = await runBatch(batch);
      batch.forEach((entry, n) => settle(entry, settled[n]!));
    } finally {
      busyLanes -= 1;
      for (const { exclusive } of batch) if (exclusive !== undefined) taken.delete(exclusive);
      startLanes();
    }
  }

  function settle(entry: Waiting<C>, result: Reply | Error | 'again'): void {
    if (leaders.get(entry.hash) !== entry) return;
    leaders.delete(entry.hash);
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
 * Takes the oldest ones out of the queue, at most one for each value of `exclusive`, and none whose value is taken; theirs
 * are taken now. What has to wait keeps its place.
 */
function takeBatch<C>(queue: Waiting<C>[], taken: Set<string>, maxBatch: number): Waiting<C>[] {
  const batch: Waiting<C>[] = [];
  const left: Waiting<C>[] = [];
  const passed = new Set<string>();
  for (const entry of queue) {
    const { exclusive } = entry;
    const mustWait = exclusive !== undefined && (taken.has(exclusive) || passed.has(exclusive));
    if (batch.length >= maxBatch || mustWait) {
      left.push(entry);
      if (exclusive !== undefined) passed.add(exclusive);
      continue;
    }
    batch.push(entry);
    if (exclusive !== undefined) taken.add(exclusive);
  }
  queue.splice(0, queue.length, ...left);
  return batch;
}

function give<C>({ resolve, reject }: Follower<C>, result: Reply | Error): void {
  if (result instanceof Error) reject(result);
  else resolve(result);
}

/** A key that is held elsewhere, or a database that is away: who comes next would wait as long again, in vain. */
function isForAll(result: Reply | Error): boolean {
  return result instanceof Error ? failureOf(result) !== 'unexpected' : result.outcome === 'busy';
}
