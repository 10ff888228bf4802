import { setTimeout as delay } from 'node:timers/promises';
import { connectWithin } from '../answered.ts';
import { requireCounts, withDefaults } from '../defaults.ts';
import { TwiceproofError } from '../errors.ts';
import type { HeldRow } from '../inbox/held.ts';
import { chooseStart, readPositions } from '../inbox/position.ts';
import { point } from '../points.ts';
import { quotedSchema } from '../schema-name.ts';
import type { Pool } from '../transaction.ts';
import type { AssignedLane, Batch, Delivery, Position, Subscription, Transport } from '../transport.ts';
import type { Tx } from '../tx.ts';
import { longestPauseMs } from '../within.ts';
import { createApply, laneName, type Part } from './apply.ts';
import { isHandler, type Handler } from './handler.ts';
import { createRedrive } from './redrive.ts';
import { createSlots } from './slots.ts';
import { pause, workOffEach, workOffTogether, type ConsumerPass } from './work-off.ts';

export type { Handler, HandlerOfEach, HandlerOfSets } from './handler.ts';
export type { ConsumerPass } from './work-off.ts';

export interface ConsumerOptions {
  /** Of the database in which the handler's effects are: the inbox must be in the same one. */
  pool: Pool;
  transport: Transport;
  /** What processes the messages. Messages are processed once for each name, so it must not change. */
  name: string;
  topics: readonly string[];
  handler: Handler;
  /**
   * Of the broker. It may change, when no member of the old one runs any more: what was processed is known by the name. While
   * both run nothing is done twice, but they set each other's positions back. Defaults to the name.
   */
  group?: string;
  /** Defaults to `twiceproof`. */
  schema?: string;
  /** How many messages are processed in one transaction, at most. Defaults to 500. */
  batch?: number;
  /**
   * How many transactions are under way at once; lanes in which something has failed do not count, see `suspects`. Defaults
   * to 2, and for a handler of sets to 1: it gets what all lanes have, and a second one would only make two smaller sets of
   * it.
   */
  workers?: number;
  /**
   * What becomes of a message whose handler has failed for good. `park`: later messages of its key wait behind it, until a
   * person has settled it. `dead-letter`: it is put aside alone. Defaults to `park`.
   */
  onFailure?: 'park' | 'dead-letter';
  /**
   * How long a message is tried again whose handler says that its error may pass; its lane waits meanwhile. Then it is
   * taken for one that has failed for good. Defaults to 60,000.
   */
  retryForMs?: number;
  /**
   * In the transaction in which they are held, for example to append a copy to the outbox for a topic of dead letters. It
   * has `handlerTimeoutMs` too. Where it fails nothing is held, and all of it is tried again, for as long as it takes.
   */
  onHeld?(tx: Tx, held: readonly HeldRow[]): Promise<void>;
  /** How long the handler may take for a batch. Then it is rolled back and halved. Defaults to 20,000. */
  handlerTimeoutMs?: number;
  /**
   * How long the server lets a transaction stand idle: a process that is frozen must not keep its messages from the one that
   * has the lane now. Longer than `handlerTimeoutMs`, or a handler that is only slow, such as one that calls another
   * service, would be taken for one that is frozen, and its batch would be tried as a whole for ever. Defaults to 30,000.
   */
  idleTimeoutMs?: number;
  /**
   * Runs messages that are older than what the inbox remembers, though they may have run before. For experiments only: this
   * is how people are charged twice. Defaults to false.
   */
  unsafeRunLate?: boolean;
  /** How often it looks for what operators asked for (`twiceproof held redrive | release`). Defaults to 1,000. */
  wishesEveryMs?: number;
  observe?(seen: ConsumerPass): void;
  /** Nothing is given up: it is tried again, for as long as it takes. This is for alarms. */
  onTrouble?(error: unknown): void;
}

const defaults = {
  batch: 500,
  onFailure: 'park',
  retryForMs: 60_000,
  unsafeRunLate: false,
  handlerTimeoutMs: 20_000,
  idleTimeoutMs: 30_000,
  wishesEveryMs: 1_000,
} as const;
const waitMs = 1_000;
/**
 * How many transactions besides are of lanes in which something has failed, until they are through: what a message does that
 * is slow, or has to be found by halving, must not hold up others.
 */
const suspects = 2;
/**
 * How often the broker is told how far we are. The position in the database is what counts, and each telling costs the
 * brokers as much as a batch of records; what they were not told comes again, as duplicates.
 */
const offsetsEveryMs = 1_000;

export interface Consumer {
  /** Resolves when the signal was aborted and what was under way is done. */
  run(signal: AbortSignal): Promise<void>;
}

/**
 * Processes each message of its topics once. A batch is one transaction: the inbox decides which messages are new, the
 * handler runs for those, the position is written, COMMIT; only then is the broker told. Whatever dies in between, what
 * was not committed comes again and is new, and what was comes again and is a duplicate.
 */
export function createConsumer(options: ConsumerOptions): Consumer {
  const { handler } = options;
  if (!isHandler(handler)) throw new TwiceproofError('TP_OPTION', 'handler has a function each, or a function set');
  const settings = withDefaults({ ...defaults, workers: 'set' in handler ? 1 : 2 }, options);
  const { pool, transport, name, topics, batch: maxRecords, workers, retryForMs, idleTimeoutMs } = settings;
  quotedSchema(options.schema);
  requireCounts({ batch: maxRecords, workers });
  if (!name || !(retryForMs >= 0) || topics.length === 0) {
    throw new TwiceproofError('TP_OPTION', 'name is a text, retryForMs a number from 0 on, and there is a topic');
  }
  if (!(settings.wishesEveryMs > 0 && settings.wishesEveryMs <= longestPauseMs)) {
    throw new TwiceproofError(
      'TP_OPTION',
      `0 < wishesEveryMs <= ${longestPauseMs} is needed, not ${settings.wishesEveryMs}`,
    );
  }
  if (!['park', 'dead-letter'].includes(settings.onFailure)) {
    throw new TwiceproofError('TP_OPTION', `onFailure is 'park' or 'dead-letter', not '${settings.onFailure}'`);
  }
  const { handlerTimeoutMs, unsafeRunLate: runLate } = settings;
  if (!(handlerTimeoutMs > 0 && handlerTimeoutMs < idleTimeoutMs && idleTimeoutMs <= longestPauseMs)) {
    const needed = `0 < handlerTimeoutMs < idleTimeoutMs <= ${longestPauseMs} is needed`;
    throw new TwiceproofError('TP_OPTION', `${needed}, not ${handlerTimeoutMs} and ${idleTimeoutMs}`);
  }
  const positions = new Map<string, bigint>();
  const common = { pool, schema: options.schema, consumer: name, handler, idleTimeoutMs, handlerTimeoutMs };
  const apply = createApply({ ...common, runLate, positions, onHeld: options.onHeld });
  const redrive = createRedrive(common);
  /** Of the topics as they are now. */
  const topicIds = new Map<string, string>();

  async function onAssigned(lanes: readonly AssignedLane[]): Promise<Position[]> {
    for (const { topic, topicId } of lanes) topicIds.set(topic, topicId);
    // On a wire that has fallen silent the lanes would be ours, and nobody would read them.
    const client = await connectWithin(pool, handlerTimeoutMs);
    let known: (bigint | undefined)[];
    try {
      known = await readPositions(client, name, lanes, options.schema);
      client.release();
    } catch (error) {
      client.release(true);
      throw error;
    }
    const starts = lanes.map((lane, n) => chooseStart(lane, known[n]));
    lanes.forEach((lane, n) => {
      const position = known[n];
      if (position === undefined) positions.delete(laneName(lane));
      else positions.set(laneName(lane), position);
    });
    for (const { topic, partition, alarm } of starts) {
      if (alarm) onTrouble(new TwiceproofError('TP_POSITION_LOST', `${topic}/${partition}: ${alarm}`));
    }
    await point('consumer:assigned');
    return starts;
  }

  /** As many batches as there are slots, and besides them those of lanes that are suspect. Throws what one of them threw. */
  async function work(subscription: Subscription, stopping: AbortSignal): Promise<void> {
    const slots = createSlots(workers);
    const suspectSlots = createSlots(suspects);
    const underWay = new Set<Promise<void>>();
    const failed = new AbortController();
    const signal = AbortSignal.any([stopping, failed.signal]);
    while (!signal.aborted) {
      await slots.take();
      // What is under way is told to end, and waited for, before anybody hears of it.
      const batches = await gather(subscription, signal).catch((error: unknown) => {
        failed.abort(error);
        return [];
      });
      if (batches.length === 0) {
        slots.giveBack();
        continue;
      }
      const parts = await partsOf(batches);
      const together = workOffTogether(apply, parts).finally(slots.giveBack);
      const task = together
        .then(async (result) => {
          if ('pass' in result) return done(subscription, result.pass, parts);
          const how = { apply, retryForMs, onFailure: settings.onFailure, onTrouble, slots: suspectSlots };
          return workOffEach(how, result, signal, async (part, { pass, isDone }) =>
            done(subscription, pass, isDone ? [part] : []),
          );
        })
        .catch((error: unknown) => failed.abort(error))
        .finally(() => underWay.delete(task));
      underWay.add(task);
    }
    await Promise.all(underWay);
    if (failed.signal.aborted) throw failed.signal.reason;
  }

  /** One batch; for a handler of sets what other lanes have besides, since one large set costs less than many small ones. */
  async function gather(subscription: Subscription, signal: AbortSignal): Promise<Batch[]> {
    const batches: Batch[] = [];
    if (signal.aborted) return batches;
    let room = maxRecords;
    do {
      const wait = batches.length === 0 ? waitMs : 0;
      const batch = await subscription.receive({ maxRecords: room, waitMs: wait, signal });
      if (!batch) break;
      batches.push(batch);
      room -= batch.deliveries.length;
    } while ('set' in handler && room > 0);
    return batches;
  }

  async function partsOf(batches: readonly Batch[]): Promise<Part[]> {
    await point('consumer:fetched');
    return batches.map(({ lane, deliveries, signal }) => {
      return { lane: { ...lane, topicId: topicIds.get(lane.topic) ?? '' }, deliveries, signal };
    });
  }

  async function done(subscription: Subscription, pass: ConsumerPass, parts: readonly Part[]): Promise<void> {
    await point('consumer:committed');
    if (pass.received > 0) observe(pass);
    const deliveries = parts.flatMap((part) => part.deliveries);
    if (deliveries.length > 0) await settle(subscription, deliveries);
  }

  async function settle(subscription: Subscription, deliveries: readonly Delivery[]): Promise<void> {
    try {
      // What is stale comes again, and is a duplicate.
      await subscription.settle(deliveries);
    } catch (error) {
      onTrouble(error);
    }
  }

  /** An observer that throws must not make us do anything again, nor end us. */
  function observe(pass: ConsumerPass): void {
    try {
      options.observe?.(pass);
    } catch (error) {
      onTrouble(error);
    }
  }

  function onTrouble(error: unknown): void {
    try {
      options.onTrouble?.(error);
    } catch {
      // Nobody is left to tell.
    }
  }

  async function lookForWishes(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await redrive.asked(signal).catch(onTrouble);
      const ms = settings.wishesEveryMs * (0.75 + Math.random() / 2);
      await delay(ms, undefined, { signal }).catch(() => {});
    }
  }

  async function subscribe(signal: AbortSignal): Promise<Subscription | undefined> {
    const onRevoked = async (): Promise<void> => point('consumer:revoked');
    for (let attempt = 1; !signal.aborted; attempt += 1) {
      try {
        const group = options.group ?? name;
        return await transport.subscribe({ group, topics, offsetsEveryMs, onAssigned, onRevoked, onTrouble });
      } catch (error) {
        onTrouble(error);
        await pause(attempt, signal);
      }
    }
    return undefined;
  }

  /** Until we are stopped, or a lane has to begin anew, or somebody else has closed the subscription. */
  async function runSubscribed(subscription: Subscription, signal: AbortSignal): Promise<Error | undefined> {
    const closed = new AbortController();
    const ending = AbortSignal.any([signal, closed.signal]);
    const loops = [work(subscription, ending), lookForWishes(ending)];
    for (const loop of loops) loop.catch(() => closed.abort());
    const [ended] = (await Promise.allSettled(loops)).filter((each) => each.status === 'rejected');
    await subscription.close();
    const reason: unknown = ended?.reason;
    return reason === undefined || reason instanceof Error
      ? reason
      : new Error('the consumer ended', { cause: reason });
  }

  async function run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const subscription = await subscribe(signal);
      const ended = subscription && (await runSubscribed(subscription, signal));
      // Where lanes begin is chosen when they are assigned, so it subscribes anew.
      if (ended instanceof TwiceproofError && ended.code === 'TP_POSITION_LOST') onTrouble(ended);
      else if (ended) throw ended;
    }
  }

  return { run };
}
