import type { Message, MessageId } from './message.ts';
import type { RelayTimes } from './relay-times.ts';

/** A committed outbox row, as the relay gets it from a source. */
export interface SourcedMessage extends Message {
  id: MessageId;
  createdAt: Date;
}

/**
 * A run of committed messages in publish order. It holds its place in the source, so that nobody else is given a message
 * of the same key, until it is advanced or abandoned; each of them ends it, and so does the death of this process.
 */
export interface SourceBatch {
  readonly messages: readonly SourcedMessage[];
  /** Messages that are done are never handed out again. What is not done is. */
  advance(progress: Progress): Promise<void>;
  /**
   * Hand out all of them again. What was published already becomes a duplicate that the inbox absorbs.
   *
   * What comes to nothing, or to a part, comes again after a pause that grows, up to some seconds; meanwhile it holds up
   * nothing that could be handed out beside it. Who asks with `waitMs` 0 is given it at once if there is nothing else.
   */
  abandon(): Promise<void>;
}

export interface Progress {
  /** So many messages from the beginning are done: each of them is acknowledged, or parked by this call. */
  done: number;
  /** Which of those are kept aside, by index and in order, since they cannot be published: their key waits for a person. */
  parked: readonly { index: number; reason: string }[];
}

/** How the relay learns of committed outbox rows. */
export interface Source {
  readonly name: string;
  /** How long a batch may be held before its place is given to another, where that is so. */
  readonly times?: RelayTimes;
  /** Rejects with the reason why this database must not be published from. */
  check(): Promise<void>;
  /**
   * The next batch, or undefined when none came in `waitMs` or the signal was aborted. Messages of a key that is parked
   * are not in it: they are kept aside behind the others of their key when the batch advances. Several may be asked for
   * at once; no two hold messages of one key.
   */
  next(options: { maxMessages: number; waitMs: number; signal: AbortSignal }): Promise<SourceBatch | undefined>;
  close(): Promise<void>;
}
