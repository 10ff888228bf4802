import { isSameRequest, type Answer, type Intent } from '../idempotency/intent.ts';
import type { Known } from '../idempotency/statements.ts';
import { timeOfUuidv7 } from '../uuid.ts';

/** What became of a request, in either shape of the edge. */
export type Reply =
  | { outcome: 'answered'; answer: Answer; replayed: boolean }
  /** The key was used for another request. */
  | { outcome: 'mismatch' }
  /** The key is older than what is kept, and not known any more: whether it was used, nobody can say. */
  | { outcome: 'expired' }
  /** Another request with this key is still under way, or too many others are. */
  | { outcome: 'busy'; retryAfterMs: number };

export interface EdgeLimits {
  /**
   * How long a request waits for another one with the same key that is under way elsewhere. Also how long any lock may
   * be waited for in the operation's own statements. Defaults to 5,000.
   */
  waitMs: number;
  /** How long keys are kept. Publish it: a client may repeat a request that long. Defaults to 72 hours. */
  retentionMs: number;
  /** An answer with a larger body is given to the first caller and not kept. Defaults to 262,144. */
  maxAnswerBytes: number;
  /**
   * Whether new requests are taken at present (see `createPendingGuard`). While they are not, keys that are known are
   * still answered. Defaults to always.
   */
  admits: () => boolean;
  /** Defaults to this machine's clock; a parameter for tests. */
  now: () => number;
}

export const edgeDefaults: EdgeLimits = {
  waitMs: 5_000,
  retentionMs: 72 * 3_600_000,
  maxAnswerBytes: 262_144,
  admits: () => true,
  now: Date.now,
};

export const busy: Reply = { outcome: 'busy', retryAfterMs: 1_000 };

/** For every transaction of the edge. */
export function boundedWaits({ waitMs }: EdgeLimits, lockWaitMs = waitMs): Record<string, string> {
  return {
    lock_timeout: String(lockWaitMs),
    // A process that stands still inside the transaction would hold its keys for as long as it stands.
    idle_in_transaction_session_timeout: String(2 * waitMs),
  };
}

/** What a lock that was waited for in vain is told by. */
export function isLockTimeout(error: unknown): boolean {
  return (error as { code?: unknown }).code === '55P03';
}

export function replay(known: Known): Reply {
  return known === 'mismatch' ? { outcome: 'mismatch' } : { outcome: 'answered', answer: known.answer, replayed: true };
}

/** For one that has waited in this process for an equal key: as if it had been read from the store. */
export function shareReply(answer: Answer, first: Intent, intent: Intent, limits: EdgeLimits): Reply {
  if (!isSameRequest(first, intent)) return { outcome: 'mismatch' };
  return { outcome: 'answered', answer: keptAnswer(answer, limits), replayed: true };
}

/** What is stored of an answer: too large a body leaves only the fact that it was given. */
export function keptAnswer(answer: Answer, { maxAnswerBytes }: EdgeLimits): Answer {
  return (answer.body?.byteLength ?? 0) > maxAnswerBytes ? { ...answer, body: null } : answer;
}

/** Whether a key that is not known may be claimed; if not, what it is told instead. */
export function refusal(intent: Intent, limits: EdgeLimits): Reply | undefined {
  if (isTooOld(intent, limits)) return { outcome: 'expired' };
  return limits.admits() ? undefined : busy;
}

/**
 * A key that is a UUIDv7 carries the time of its birth. One that is older than what is kept is only looked up: fail
 * closed, since what is not found may have been done and forgotten.
 */
function isTooOld({ key }: Intent, { retentionMs, now }: EdgeLimits): boolean {
  const bornAt = timeOfUuidv7(key);
  return bornAt !== undefined && bornAt < now() - retentionMs;
}
