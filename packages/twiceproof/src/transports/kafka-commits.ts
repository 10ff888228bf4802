import { setTimeout as delay } from 'node:timers/promises';
import { TwiceproofError } from '../errors.ts';
import { point } from '../points.ts';
import type { Position } from '../transport.ts';
import { doneWithin } from './kafka-client.ts';
import { isFenced, toTwiceproofError } from './kafka-errors.ts';
import { isRevoked, type LaneState } from './lanes.ts';

const withinMs = 10_000;
const retryMs = 250;

export interface CommitsOptions {
  /** How long what is settled may wait until the broker is told. */
  everyMs: number;
  /** One request. It carries the generation in which the lanes were given to us, so the broker refuses it when the group has moved on. */
  commit(positions: Position[]): Promise<void>;
  /** The broker says that our lanes are not ours any more. */
  lost(): void;
  failed(reason: TwiceproofError): void;
}

export interface Commits {
  /** This lane is settled up to here. Resolves when the broker knows, or at once where it may wait. */
  add(lane: LaneState, offset: bigint): Promise<'settled' | 'stale'>;
  /** Tells the broker all that it does not know yet. Never rejects. */
  flush(): Promise<Told>;
}

/** The lanes of which the broker has confirmed it. */
type Told = ReadonlySet<LaneState>;

/**
 * Tells the broker how far our lanes are settled: one request at a time, for all lanes that have moved since the last. A
 * commit costs the brokers as much as a batch of records (it is one, in a log of their own with as many replicas), so
 * whoever keeps positions of his own lets it wait.
 */
export function createCommits({ everyMs, commit, lost, failed }: CommitsOptions): Commits {
  const waiting = new Map<LaneState, bigint>();
  let last = Promise.resolve<Told>(new Set());
  /** Whatever waits now goes with this one. */
  let next: Promise<Told> | undefined;
  let timer: NodeJS.Timeout | undefined;

  function flush(): Promise<Told> {
    next ??= last = last.then(async () => {
      next = undefined;
      const settled = [...waiting];
      waiting.clear();
      return commitWithin(settled);
    });
    return next;
  }

  async function add(lane: LaneState, offset: bigint): Promise<'settled' | 'stale'> {
    waiting.set(lane, offset);
    if (everyMs === 0) return (await flush()).has(lane) ? 'settled' : 'stale';
    timer ??= setTimeout(() => {
      timer = undefined;
      flush().catch(() => {}); // It does not reject.
    }, everyMs).unref();
    return 'settled';
  }

  /** Errors that pass (the coordinator moves when its broker dies) are tried again for a while; after that the membership is given up, and with it the lanes. */
  async function commitWithin(settled: readonly (readonly [LaneState, bigint])[]): Promise<Told> {
    const deadline = performance.now() + withinMs;
    for (;;) {
      const ours = settled.filter(([lane]) => !isRevoked(lane));
      if (ours.length === 0) return new Set();
      try {
        const sent = commit(ours.map(([{ lane }, offset]) => ({ ...lane, offset })));
        await doneWithin(
          deadline - performance.now(),
          'committing',
          Promise.all([sent, point('transport:offsets-sent')]),
        );
        return new Set(ours.map(([lane]) => lane));
      } catch (error) {
        const isLate = performance.now() + retryMs >= deadline || error instanceof TwiceproofError;
        if (!isFenced(error) && !isLate) {
          await delay(retryMs);
          continue;
        }
        if (!isFenced(error)) failed(toTwiceproofError(error, 'committing'));
        else if (ours.some(([lane]) => !isRevoked(lane))) lost();
        return new Set();
      }
    }
  }

  return { add, flush };
}
