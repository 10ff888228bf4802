import { setTimeout as delay } from 'node:timers/promises';
import { isSameRequest, keyHash, type Answer, type Intent } from '../idempotency/intent.ts';
import { createKeyStore, type Known, type KeyStore } from '../idempotency/statements.ts';
import { point } from '../points.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { timeOfUuidv7 } from '../uuid.ts';

export interface HandlerEdgeOptions {
  pool: Pool;
  /** Defaults to `twiceproof`. */
  schema?: string;
  /**
   * How long a request waits for another one with the same key that is under way elsewhere. Also how long any lock may
   * be waited for in the handler. Defaults to 5,000.
   */
  waitMs?: number;
  /** How long keys are kept. Publish it: a client may repeat a request that long. Defaults to 72 hours. */
  retentionMs?: number;
  /** An answer with a larger body is given to the first caller and not kept. Defaults to 262,144. */
  maxAnswerBytes?: number;
  /** Defaults to this machine's clock; a parameter for tests. */
  now?: () => number;
}

export type Reply =
  | { outcome: 'answered'; answer: Answer; replayed: boolean }
  /** The key was used for another request. */
  | { outcome: 'mismatch' }
  /** The key is older than what is kept, and not known any more: whether it was used, nobody can say. */
  | { outcome: 'expired' }
  /** Another request with this key is still under way. */
  | { outcome: 'busy'; retryAfterMs: number };

export interface HandlerEdge {
  /**
   * Runs `handler` once for this intent, whatever is repeated, and answers what it answered. Claim, the handler's
   * own SQL through `tx`, and the stored answer are one transaction. An answer is stored whatever its code; what
   * the handler throws rolls everything back, and leaves the key free for the next try.
   *
   * The handler may be run again after a serialization failure or a deadlock, with nothing left of the run before.
   */
  run(intent: Intent, handler: (tx: Tx) => Promise<Answer>): Promise<Reply>;
}

const defaults = { waitMs: 5_000, retentionMs: 72 * 3_600_000, maxAnswerBytes: 262_144, now: Date.now };

export function createHandlerEdge(options: HandlerEdgeOptions): HandlerEdge {
  const settings = { ...defaults, ...options };
  const store = createKeyStore(options.schema);
  /** Requests of this process that are under way, by key: an equal one waits here and not on a connection. */
  const underWay = new Map<string, { intent: Intent; reply: Promise<Reply> }>();
  return {
    async run(intent, handler) {
      const hash = keyHash(intent);
      const deadline = performance.now() + settings.waitMs;
      for (let other = underWay.get(hash); other; other = underWay.get(hash)) {
        const first = await endsWithin(other.reply, deadline - performance.now());
        if (first === 'late') return busy;
        if (first?.outcome === 'answered') return shared(first.answer, other.intent, intent, settings);
        // It failed, and the key is free: our turn, or that of another who waited.
      }
      const reply = runOnce(settings, store, intent, handler);
      underWay.set(hash, { intent, reply });
      try {
        return await reply;
      } finally {
        underWay.delete(hash);
      }
    },
  };
}

/** As if it had been read from the store. */
function shared(answer: Answer, first: Intent, intent: Intent, settings: Settings): Reply {
  if (!isSameRequest(first, intent)) return { outcome: 'mismatch' };
  return { outcome: 'answered', answer: kept(answer, settings), replayed: true };
}

const busy: Reply = { outcome: 'busy', retryAfterMs: 1_000 };

async function endsWithin(reply: Promise<Reply>, ms: number): Promise<Reply | undefined | 'late'> {
  if (ms <= 0) return 'late';
  const timer = new AbortController();
  const timeout = delay(ms, 'late' as const, { signal: timer.signal }).catch(() => 'late' as const);
  const ended = reply.catch(() => undefined);
  try {
    return await Promise.race([ended, timeout]);
  } finally {
    timer.abort();
  }
}

type Settings = typeof defaults & HandlerEdgeOptions;

async function runOnce(
  settings: Settings,
  store: KeyStore,
  intent: Intent,
  handler: (tx: Tx) => Promise<Answer>,
): Promise<Reply> {
  const hash = keyHash(intent);
  const localSettings = {
    lock_timeout: String(settings.waitMs),
    // A process that stands still inside the transaction would hold the key for as long as it stands.
    idle_in_transaction_session_timeout: String(2 * settings.waitMs),
  };
  try {
    return await transaction(
      settings.pool,
      async (tx): Promise<Reply> => {
        for (;;) {
          if (isTooOld(intent, settings)) {
            // Fail closed: what is not found may have been done and forgotten.
            const known = (await store.read(tx, [intent])).get(hash);
            return known ? replay(known) : { outcome: 'expired' };
          }
          await point('edge:before-claim');
          const claim = (await store.claim(tx, [intent])).get(hash);
          await point('edge:claimed');
          if (claim)
            return {
              outcome: 'answered',
              answer: await execute(tx, store, claim.id, settings, handler),
              replayed: false,
            };
          const known = (await store.read(tx, [intent])).get(hash);
          if (known) return replay(known);
          // It expired between the two statements: now it is free.
        }
      },
      { localSettings },
    );
  } catch (error) {
    if ((error as { code?: unknown }).code === '55P03') return busy;
    throw error;
  }
}

function replay(known: Known): Reply {
  return known === 'mismatch' ? { outcome: 'mismatch' } : { outcome: 'answered', answer: known.answer, replayed: true };
}

async function execute(
  tx: Tx,
  store: KeyStore,
  id: string,
  settings: Settings,
  handler: (tx: Tx) => Promise<Answer>,
): Promise<Answer> {
  const answer = await handler(tx);
  await point('edge:handled');
  await store.store(tx, id, kept(answer, settings));
  await point('edge:answer-stored');
  return answer;
}

/** What is stored of an answer: too large a body leaves only the fact that it was given. */
function kept(answer: Answer, { maxAnswerBytes }: Settings): Answer {
  return (answer.body?.byteLength ?? 0) > maxAnswerBytes ? { ...answer, body: null } : answer;
}

/** A key that is a UUIDv7 carries the time of its birth. */
function isTooOld({ key }: Intent, { retentionMs, now }: Settings): boolean {
  const bornAt = timeOfUuidv7(key);
  return bornAt !== undefined && bornAt < now() - retentionMs;
}
