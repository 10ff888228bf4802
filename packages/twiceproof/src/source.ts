import type { Message, MessageId } from './message.ts';

/** A committed outbox row, as the relay gets it from a source. */
export interface SourcedMessage extends Message {
  id: MessageId;
  createdAt: Date;
}

/**
 * A run of committed messages in publish order. It holds its place in the source until it is
 * advanced or abandoned; both end it.
 */
export interface SourceBatch {
  readonly messages: readonly SourcedMessage[];
  /** Every message is acknowledged: never hand them out again. */
  advance(): Promise<void>;
  /** Hand them out again. What was published already becomes a duplicate that the inbox absorbs. */
  abandon(): Promise<void>;
}

/** How the relay learns of committed outbox rows. */
export interface Source {
  readonly name: string;
  /** The next batch, or undefined when nothing is waiting. */
  next(options: { maxMessages: number; signal: AbortSignal }): Promise<SourceBatch | undefined>;
  close(): Promise<void>;
}
