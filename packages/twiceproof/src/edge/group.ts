import { withDefaults } from '../defaults.ts';
import { type Answer, type Intent } from '../idempotency/intent.ts';
import { createKeyStore, type KeyStore } from '../idempotency/statements.ts';
import { onItsOwnConnection } from '../own-connection.ts';
import { point } from '../points.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { settleOrSplit, type Settled } from './batch.ts';
import { createQueue, queueDefaults, type Entry, type QueueOptions } from './group-queue.ts';
import { boundedWaits, edgeDefaults, keptAnswer, refusal, replay, type EdgeLimits, type Reply } from './reply.ts';

export interface GroupEdgeOptions<C> extends Partial<EdgeLimits>, QueueOptions<C> {
  pool: Pool;
  /** Defaults to `twiceproof`. */
  schema?: string;
  /**
   * The effects of a whole batch, by set, in one transaction with the claims: one answer for each command, at the same
   * index. What the business refuses is an answer too. Rows are locked in one order for all (sort in SQL), or
   * batches of two processes can wait for each other. An error rolls the batch back; the batch is then split until
   * the command that caused it stands alone.
   */
  effects(tx: Tx, commands: readonly C[]): Promise<readonly Answer[]>;
}

export interface GroupEdge<C> {
  /**
   * As `HandlerEdge.run`, for many at once: intents that arrive while a commit is under way go together into the
   * next. A batch is what has gathered when a lane is free, and there is no timer unless `batchEveryMs` asks for one.
   */
  run(intent: Intent, command: C): Promise<Reply>;
}

const defaults = { ...edgeDefaults, ...queueDefaults };

export function createGroupEdge<C>(options: GroupEdgeOptions<C>): GroupEdge<C> {
  const settings = withDefaults(defaults, options);
  const store = createKeyStore(options.schema);
  const queue = createQueue<C>(settings, async (batch) =>
    settleOrSplit(batch, settings.waitMs, async (part, lockWaitMs) =>
      transaction(settings.pool, async (tx) => settleBatch(tx, part, settings, store), {
        localSettings: boundedWaits(settings, lockWaitMs),
      }),
    ),
  );
  return { run: queue.add };
}

type Settings<C> = typeof defaults & GroupEdgeOptions<C>;

async function settleBatch<C>(
  tx: Tx,
  batch: readonly Entry<C>[],
  settings: Settings<C>,
  store: KeyStore,
): Promise<Settled[]> {
  await point('edge:before-claim');
  const refused = new Map(batch.map(({ hash, intent }) => [hash, refusal(intent, settings)]));
  const claimable = batch.filter(({ hash }) => !refused.get(hash));
  const claims =
    claimable.length > 0
      ? await store.claim(
          tx,
          claimable.map(({ intent }) => intent),
        )
      : new Map<string, { id: string }>();
  await point('edge:claimed');
  const winners = batch.filter(({ hash }) => claims.has(hash));
  const losers = batch.filter(({ hash }) => !claims.has(hash));
  // In a statement of its own: in that of the claim, the row of another may not be visible.
  const known =
    losers.length > 0
      ? await store.read(
          tx,
          losers.map(({ intent }) => intent),
        )
      : new Map<string, never>();
  const answers =
    winners.length > 0 ? await applyEffects(tx, winners, claims, settings, store) : new Map<string, Answer>();
  return batch.map(({ hash }) => {
    const answer = answers.get(hash);
    if (answer) return { outcome: 'answered', answer, replayed: false };
    const before = known.get(hash);
    if (before) return replay(before);
    // Not there any more, though it was a moment ago: it has just expired, and can be claimed now.
    return refused.get(hash) ?? 'again';
  });
}

async function applyEffects<C>(
  tx: Tx,
  winners: readonly Entry<C>[],
  claims: ReadonlyMap<string, { id: string }>,
  settings: Settings<C>,
  store: KeyStore,
): Promise<Map<string, Answer>> {
  const commands = winners.map(({ command }) => command);
  const answers = await onItsOwnConnection(settings.pool, async () => settings.effects(tx, commands));
  if (answers.length !== winners.length) {
    throw new Error(
      `effects gave ${answers.length} answers to ${winners.length} commands; each needs one, in their order`,
    );
  }
  await point('edge:handled');
  await store.store(
    tx,
    winners.map(({ hash }, n) => ({ id: claims.get(hash)!.id, answer: keptAnswer(answers[n]!, settings) })),
  );
  await point('edge:answer-stored');
  return new Map(winners.map(({ hash }, n) => [hash, answers[n]!]));
}
