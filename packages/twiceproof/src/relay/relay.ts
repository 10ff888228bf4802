import { setTimeout as delay } from 'node:timers/promises';
import { requireCounts, withDefaults } from '../defaults.ts';
import { TwiceproofError } from '../errors.ts';
import type { MessageId } from '../message.ts';
import { point } from '../points.ts';
import { relayTimes, type RelayTimes } from '../relay-times.ts';
import type { PassResult, Service } from '../service.ts';
import type { Source, SourceBatch, SourcedMessage } from '../source.ts';
import type { OutgoingRecord, PublishOutcome, Transport } from '../transport.ts';
import { within } from '../within.ts';
import { decide, type Decided } from './decide.ts';
import { prepare, withPublished } from './prepare.ts';

export interface RelayOptions {
  source: Source;
  transport: Transport;
  /** Names this outbox in what is published (`ce_source`), for example `/orders`. */
  name: string;
  /**
   * The topics that it may publish to. A message for another one waits, and all of its shard behind it, with an alarm: it
   * may be a topic that loses records, which nobody has looked at. Defaults to any.
   */
  topics?: readonly string[];
  /** How many messages are read and published together, at most. Defaults to 500. */
  batch?: number;
  /** How many batches may be under way at once, each of another shard. Defaults to 1. */
  lanes?: number;
  /** Defaults to those of the source, and must fit them. */
  times?: Partial<RelayTimes>;
  observe?(seen: RelayPass): void;
  /** Nothing is given up: it is tried again, for as long as it takes. This is for alarms. */
  onTrouble?(error: unknown): void;
}

/** What came of one batch. */
export interface RelayPass {
  messages: number;
  acknowledged: number;
  parked: number;
  /** Sent again by this process, because it did not learn what became of them, or could not write down that it did. */
  republished: number;
  publishMs: number;
  /** From commit (nearly: from the append) to acknowledge, of each acknowledged message. */
  agesMs: readonly number[];
}

const defaults = { batch: 500, lanes: 1 };
const longestPauseMs = 5_000;
const waitMs = 1_000;
/** Of messages that were sent and not advanced. Forgetting them costs duplicates only. */
const maxRemembered = 100_000;

/**
 * Publishes what a source gives, and advances the source when every message before that point is acknowledged by the
 * transport, or parked. What is not acknowledged comes again from the source, with the same id, in the same order.
 */
export function createRelay(options: RelayOptions): Service & { close(): Promise<void> } {
  const { source, transport, name, batch: maxMessages, lanes } = withDefaults(defaults, options);
  requireCounts({ batch: maxMessages, lanes });
  if (typeof name !== 'string' || name === '' || !name.isWellFormed()) {
    throw new TwiceproofError(
      'TP_OPTION',
      'name is a text that is not empty: it names this outbox in what is published',
    );
  }
  const publishDeadlineMs = deadlineOf(options);
  const topics = options.topics && new Set(options.topics);
  let publisher = transport.publisher();
  /** Acknowledged, though a message before them was not: they need not be sent again. */
  const acknowledged = new Set<MessageId>();
  const sent = new Set<MessageId>();

  async function pass(waitForMs: number, signal: AbortSignal): Promise<PassResult | 'stuck'> {
    const batch = await source.next({ maxMessages, waitMs: waitForMs, signal });
    if (!batch) return 'idle';
    let decided: Decided & { seen: RelayPass };
    try {
      decided = await publishAll(batch.messages);
    } catch (error) {
      await batch.abandon();
      throw error;
    }
    // Before it advances: what was acknowledged was published, whatever becomes of that. One that throws holds up nothing.
    try {
      options.observe?.(decided.seen);
    } finally {
      await finish(batch, decided);
    }
    if (decided.trouble) options.onTrouble?.(decided.trouble);
    if (decided.done < batch.messages.length) return 'stuck';
    return batch.messages.length < maxMessages ? 'idle' : 'busy';
  }

  async function publishAll(messages: readonly SourcedMessage[]): Promise<Decided & { seen: RelayPass }> {
    await point('relay:read');
    const open = messages.filter(({ id }) => !acknowledged.has(id));
    const prepared = prepare(open, name, topics);
    const { messages: ready, records } = prepared;
    const republished = ready.filter(({ id }) => sent.has(id)).length;
    for (const { id } of ready) sent.add(id);
    await point('relay:before-send');
    const began = performance.now();
    const [published] = await Promise.all([publishInTime(records), point('relay:sending')]);
    const publishMs = performance.now() - began;
    const outcomes = withPublished(prepared, published);
    for (const { id } of messages) if (acknowledged.has(id)) outcomes.set(id, { outcome: 'acknowledged' });
    const decided = decide(messages, outcomes);
    await point(decided.done < messages.length ? 'relay:part-acknowledged' : 'relay:acknowledged');
    const now = Date.now();
    // Those of an earlier pass have been counted then.
    const news = decided.acknowledged.filter(({ id }) => !acknowledged.has(id));
    const seen = {
      messages: messages.length,
      acknowledged: news.length,
      parked: decided.parked.length,
      republished,
      publishMs,
      agesMs: news.map(({ createdAt }) => now - createdAt.getTime()),
    };
    return { ...decided, seen };
  }

  /** A transport bounds its attempts by itself. One that does not is left alone with what it has, and replaced. */
  async function publishInTime(records: readonly OutgoingRecord[]): Promise<PublishOutcome[]> {
    if (records.length === 0) return [];
    const current = publisher;
    let late: TwiceproofError | undefined;
    const outOfTime = (): Error =>
      (late = new TwiceproofError('TP_DEADLINE', `the transport did not answer in ${publishDeadlineMs} ms`));
    try {
      return await within(publishDeadlineMs, current.publish(records), outOfTime);
    } catch (error) {
      if (!late || error !== late) throw error;
      if (current === publisher) publisher = transport.publisher();
      current.close().catch(() => {});
      const outcome: PublishOutcome = { outcome: 'unknown', error: late };
      return records.map(() => outcome);
    }
  }

  async function finish(batch: SourceBatch, { done, parked, acknowledged: known }: Decided): Promise<void> {
    for (const { id } of known) acknowledged.add(id);
    if (done === 0) await batch.abandon();
    else await batch.advance({ done, parked });
    for (const { id } of batch.messages.slice(0, done)) {
      sent.delete(id);
      acknowledged.delete(id);
    }
    if (sent.size > maxRemembered) sent.clear();
    if (acknowledged.size > maxRemembered) acknowledged.clear();
    await point('relay:advanced');
  }

  async function runLane(signal: AbortSignal): Promise<void> {
    let pauseMs = 0;
    while (!signal.aborted) {
      const result = await pass(waitMs, signal).catch((error: unknown) => {
        options.onTrouble?.(error);
        return 'stuck' as const;
      });
      // A source gives what is stuck only now and then, and others between: so this grows only while all of it is stuck.
      pauseMs = result === 'stuck' ? Math.min(Math.max(50, 2 * pauseMs), longestPauseMs) : 0;
      if (pauseMs > 0) await delay(pauseMs * (0.5 + Math.random()), undefined, { signal }).catch(() => {});
    }
  }

  return {
    runOnce: async () => ((await pass(0, new AbortController().signal)) === 'busy' ? 'busy' : 'idle'),
    run: async (signal) => {
      await Promise.all(Array.from({ length: lanes }, async () => runLane(signal)));
    },
    close: async () => publisher.close(),
  };
}

/** A source that takes a place away sooner than we give up a batch would have another publish it beside us. */
function deadlineOf({ source, times }: RelayOptions): number {
  const { publishDeadlineMs } = relayTimes(times ?? source.times);
  const { idleTimeoutMs = Infinity } = source.times ?? {};
  if (publishDeadlineMs < idleTimeoutMs) return publishDeadlineMs;
  const given = `not ${publishDeadlineMs} and ${idleTimeoutMs}: give both the same times`;
  throw new TwiceproofError(
    'TP_OPTION',
    `publishDeadlineMs of the relay is less than idleTimeoutMs of its source, ${given}`,
  );
}
