import { setTimeout as delay } from 'node:timers/promises';
import { withDefaults } from '../defaults.ts';
import { keyHash, type Answer, type Intent } from '../idempotency/intent.ts';
import { createKeyStore, type KeyStore } from '../idempotency/statements.ts';
import { onItsOwnConnection } from '../own-connection.ts';
import { point } from '../points.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import {
  boundedWaits,
  busy,
  edgeDefaults,
  isLockTimeout,
  keptAnswer,
  refusal,
  replay,
  shareReply,
  type EdgeLimits,
  type Reply,
} from './reply.ts';

export interface HandlerEdgeOptions extends Partial<EdgeLimits> {
  pool: Pool;
  /** Defaults to `twiceproof`. */
  schema?: string;
}

type Handler = (tx: Tx) => Promise<Answer>;

export interface HandlerEdge {
  /**
   * Runs `handler` once for this intent, whatever is repeated, and answers what it answered. Claim, the handler's
   * own SQL through `tx`, and the stored answer are one transaction. An answer is stored whatever its code; what
   * the handler throws rolls everything back, and leaves the key free for the next try.
   *
   * The handler may be run again after a serialization failure or a deadlock, with nothing left of the run before.
   */
  run(intent: Intent, handler: Handler): Promise<Reply>;
}

export function createHandlerEdge(options: HandlerEdgeOptions): HandlerEdge {
  const limits = withDefaults(edgeDefaults, options);
  const store = createKeyStore(options.schema);
  /** Requests of this process that are under way, by key: an equal one waits here and not on a connection. */
  const underWay = new Map<string, { intent: Intent; reply: Promise<Reply> }>();
  return {
    async run(intent, handler) {
      const hash = keyHash(intent);
      const deadline = performance.now() + limits.waitMs;
      for (let other = underWay.get(hash); other; other = underWay.get(hash)) {
        const first = await endsWithin(other.reply, deadline - performance.now());
        if (first === 'late') return busy;
        if (first?.outcome === 'answered') return shareReply(first.answer, other.intent, intent, limits);
        // It failed, and the key is free: our turn, or that of another who waited.
      }
      const reply = runOnce(options.pool, limits, store, intent, handler);
      underWay.set(hash, { intent, reply });
      try {
        return await reply;
      } finally {
        underWay.delete(hash);
      }
    },
  };
}

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

async function runOnce(
  pool: Pool,
  limits: EdgeLimits,
  store: KeyStore,
  intent: Intent,
  handler: Handler,
): Promise<Reply> {
  const hash = keyHash(intent);
  const refused = refusal(intent, limits);
  const attempt = async (tx: Tx): Promise<Reply> => {
    for (;;) {
      await point('edge:before-claim');
      const claim = refused ? undefined : (await store.claim(tx, [intent])).get(hash);
      await point('edge:claimed');
      if (claim) return execute(pool, tx, store, claim.id, limits, handler);
      const known = (await store.read(tx, [intent])).get(hash);
      if (known) return replay(known);
      if (refused) return refused;
      // It expired between the two statements: now it is free.
    }
  };
  try {
    return await transaction(pool, attempt, { localSettings: boundedWaits(limits) });
  } catch (error) {
    if (isLockTimeout(error)) return busy;
    throw error;
  }
}

async function execute(
  pool: Pool,
  tx: Tx,
  store: KeyStore,
  id: string,
  limits: EdgeLimits,
  handler: Handler,
): Promise<Reply> {
  const answer = await onItsOwnConnection(pool, async () => handler(tx));
  await point('edge:handled');
  await store.store(tx, [{ id, answer: keptAnswer(answer, limits) }]);
  await point('edge:answer-stored');
  return { outcome: 'answered', answer, replayed: false };
}
