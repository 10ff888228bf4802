import { setTimeout as delay } from 'node:timers/promises';
import { connectWithin } from '../answered.ts';
import { isPassing, isServerError, type Pool, type PoolClient, type QueryResult } from '../connection.ts';
import { withDefaults } from '../defaults.ts';
import { deferred } from '../deferred.ts';
import { TwiceproofError } from '../errors.ts';
import type { Answer } from '../idempotency/intent.ts';
import { answeredClaims, createKeyStore, type KeyStore } from '../idempotency/statements.ts';
import type { Message } from '../message.ts';
import { messageColumns, type Outbox } from '../outbox/append.ts';
import { arePlansPast, createNamedStatements, isNameLost } from '../named-statements.ts';
import { point } from '../points.ts';
import { withStandby } from '../standby.ts';
import { quotedSchema } from '../schema-name.ts';
import { settleOrSplit, type Settled } from './batch.ts';
import { failureOf } from '../failure.ts';
import type { GroupEdge } from './group.ts';
import { createQueue, queueDefaults, type Entry, type QueueOptions } from './group-queue.ts';
import { plannedStatement } from './planned-statement.ts';
import { edgeDefaults, keptAnswer, refusal, replay, type EdgeLimits } from './reply.ts';

/** What a command comes to if it is the first with its key. */
export interface Plan<Row> {
  answer: Answer;
  row: Row;
  messages?: readonly Message[];
}

export interface PlannedEdgeOptions<C, Row> extends Partial<EdgeLimits>, QueueOptions<C> {
  pool: Pool;
  /** Defaults to `twiceproof`. */
  schema?: string;
  /** Made before anybody knows whether the command is the first: it reads nothing, and changes nothing. */
  plan(command: C): Plan<Row>;
  /** The columns of a planned row, with their SQL types. */
  columns: Readonly<Record<keyof Row & string, string>>;
  /**
   * One INSERT, UPDATE or DELETE that carries the plans out. It reads them from `won`, which has the columns above, and
   * only the rows whose command is the first with its key. It must write one row for each and return each
   * (`RETURNING 1`): a plan that comes to nothing would leave an answer that is not true, so then the batch fails.
   */
  statement: string;
  /** Needed where plans have messages. They are written when every row is, so the rows are locked by then. */
  outbox?: Outbox;
  /**
   * The statement is given a name, so that the server parses it once on a connection. A pooler that does not carry names
   * along is noticed; say false for a client that has none. Defaults to true.
   */
  named?: boolean;
  /** How long to go on asking what became of a statement whose answer was lost. Defaults to 15,000. */
  outcomeWithinMs?: number;
}

const defaults = { ...edgeDefaults, ...queueDefaults, named: true, outcomeWithinMs: 15_000 };

/**
 * Group commit in one round trip, for operations whose answer is known beforehand: claims, answers, effects and messages
 * are one statement, which is a transaction by itself. A process that stops at any moment holds no lock, and a
 * statement whose answer was lost is simply sent again: its claims tell whether it was carried out.
 */
export function createPlannedEdge<C, Row>(options: PlannedEdgeOptions<C, Row>): GroupEdge<C> {
  const settings = withDefaults(defaults, options);
  const store = createKeyStore(options.schema);
  const text = plannedStatement(quotedSchema(options.schema), options.columns, options.statement);
  const run = createNamedStatements(settings.named);
  const statement: Statement = async (client, values) => run(client, text, values);
  const queue = createQueue<C>(settings, async (batch) => {
    // Made once: what is sent again must be the same. A plan that throws is the fault of one, so not before the split.
    const plans = new Map<Entry<C>, Plan<Row>>();
    const attempt = async (part: readonly Entry<C>[], lockWaitMs: number): Promise<Settled[]> => {
      for (const entry of part) if (!plans.has(entry)) plans.set(entry, settings.plan(entry.command));
      return untilAnswered(settings, async (client) =>
        settle(client, part, plans, { ...settings, lockWaitMs }, store, statement),
      );
    };
    return settleOrSplit(batch, settings.waitMs, async (part, lockWaitMs) =>
      attempt(part, lockWaitMs).catch(async (error: unknown) => {
        const [alone, ...others] = part;
        if (!alone || others.length > 0 || isServerError(error) || failureOf(error) !== 'unexpected') throw error;
        if (error instanceof TwiceproofError && error.code === 'TP_PLAN_NOT_KEPT') throw error;
        // What cannot be planned any more may have been carried out when it could.
        const before = await untilAnswered(settings, async (client) => store.read(client, [alone.intent]));
        const known = before.get(alone.hash);
        if (known) return [replay(known)];
        throw error;
      }),
    );
  });
  return { run: queue.add };
}

type Statement = (client: PoolClient, values: unknown[]) => Promise<QueryResult>;

type Settings<C, Row> = typeof defaults & PlannedEdgeOptions<C, Row> & { lockWaitMs: number };

async function settle<C, Row>(
  client: PoolClient,
  batch: readonly Entry<C>[],
  plans: ReadonlyMap<Entry<C>, Plan<Row>>,
  settings: Settings<C, Row>,
  store: KeyStore,
  statement: Statement,
): Promise<Settled[]> {
  await point('edge:before-claim');
  const refused = new Map(batch.map((entry) => [entry, refusal(entry.intent, settings)]));
  const claimable = batch.filter((entry) => !refused.get(entry));
  const won =
    claimable.length > 0 ? await carryOut(client, claimable, plans, settings, statement) : new Set<Entry<C>>();
  const losers = batch.filter((entry) => !won.has(entry));
  // In a statement of its own: in that of the claim, the row of another may not be visible.
  const known =
    losers.length > 0
      ? await store.read(
          client,
          losers.map(({ intent }) => intent),
        )
      : undefined;
  return batch.map((entry) => {
    if (won.has(entry)) return { outcome: 'answered', answer: plans.get(entry)!.answer, replayed: false };
    const before = known?.get(entry.hash);
    if (before) return replay(before);
    // Not there any more, though it was a moment ago: it has just expired, and can be claimed now.
    return refused.get(entry) ?? 'again';
  });
}

/** Answers those that were the first. */
async function carryOut<C, Row>(
  client: PoolClient,
  batch: readonly Entry<C>[],
  plans: ReadonlyMap<Entry<C>, Plan<Row>>,
  settings: Settings<C, Row>,
  statement: Statement,
): Promise<Set<Entry<C>>> {
  const planned = batch.map((entry) => ({ intent: entry.intent, ...plans.get(entry)! }));
  const claims = planned.map(({ intent, answer }) => ({ intent, answer: keptAnswer(answer, settings) }));
  const messages = planned.flatMap((plan, n) => (plan.messages ?? []).map((message) => ({ n: n + 1, message })));
  const prepared = prepareMessages(
    messages.map(({ message }) => message),
    settings.outbox,
  );
  const columns = Object.keys(settings.columns) as (keyof Row)[];
  const values = [
    String(settings.lockWaitMs),
    ...answeredClaims(claims),
    ...columns.map((column) => planned.map(({ row }) => row[column])),
    messages.map(({ n }) => n),
    ...prepared,
  ];
  const sending = withStandby(client, async () => statement(client, values));
  const [{ rows }] = await Promise.all([sending, point('edge:statement-sent')]);
  const lost = new Set((rows[0]!['lost'] as number[]).map((n) => batch[n - 1]));
  return new Set(batch.filter((entry) => !lost.has(entry)));
}

function prepareMessages(messages: readonly Message[], outbox: Outbox | undefined): unknown[][] {
  if (outbox) return outbox.prepare(messages).columns;
  if (messages.length === 0) return messageColumns.map(() => []);
  throw new TwiceproofError('TP_OPTION', '`plan` gives messages, and there is no `outbox` to check and write them');
}

type Attempts = Pick<typeof defaults, 'waitMs' | 'outcomeWithinMs' | 'now'> & { pool: Pool };

/**
 * Runs `work` on a connection, outside a transaction, and again when the connection is lost. Only for what can be sent
 * twice because it carries its own claim.
 */
async function untilAnswered<T>(attempts: Attempts, work: (client: PoolClient) => Promise<T>): Promise<T> {
  const deadline = performance.now() + attempts.outcomeWithinMs;
  /** Why it is not known whether an attempt was carried out. */
  let unknown: unknown;
  for (let pauseMs = 10; ; pauseMs = Math.min(pauseMs * 2, 500)) {
    const attempt = await attemptOnce(attempts, work);
    if ('value' in attempt) return attempt.value;
    const { error, wasConnected } = attempt;
    const isLost = !wasConnected || (!isServerError(error) && failureOf(error) === 'unavailable');
    if (isLost && wasConnected) unknown = error;
    const mayGoOn = isPassing(error) || isNameLost(error) || (isLost && unknown !== undefined);
    if (!mayGoOn) throw asNamed(error);
    if (performance.now() > deadline) throw unknown === undefined ? error : outcomeUnknown(unknown);
    await delay(pauseMs * (0.5 + Math.random()));
  }
}

async function attemptOnce<T>(
  { pool, waitMs, now }: Attempts,
  work: (client: PoolClient) => Promise<T>,
): Promise<{ value: T } | { error: unknown; wasConnected: boolean }> {
  let client: PoolClient | undefined;
  try {
    client = await connectWithin(pool, 2 * waitMs);
    const value = await endsWithin(work(client), 2 * waitMs);
    client.release(arePlansPast(client, now()));
    return { value };
  } catch (error) {
    client?.release(!isServerError(error));
    return { error, wasConnected: client !== undefined };
  }
}

/** A server that has fallen silent answers nothing, not even an error; and a table that is being altered makes us wait before our bounds are set. */
async function endsWithin<T>(work: Promise<T>, ms: number): Promise<T> {
  const { promise: late, reject } = deferred<never>();
  const timer = setTimeout(() => reject(new Error('Connection terminated: the server did not answer in time')), ms);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

function outcomeUnknown(cause: unknown): TwiceproofError {
  const detail = 'the connection was lost in the middle of a statement, and nobody could tell what became of it';
  return new TwiceproofError('TP_COMMIT_UNKNOWN', detail, { cause });
}

function asNamed(error: unknown): unknown {
  const found = /"twiceproof: (.*)"/.exec(String((error as { message?: unknown }).message));
  return found ? new TwiceproofError('TP_PLAN_NOT_KEPT', found[1]!, { cause: error }) : error;
}
