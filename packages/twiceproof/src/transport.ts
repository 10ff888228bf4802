import type { TwiceproofError } from './errors.ts';

/**
 * How messages travel between services. The core (publish, receive, settle one message, close) fits
 * any broker that acknowledges; what only logs can do is a declared feature. One conformance suite
 * (`twiceproof/conformance`) says what each promise below means, and every transport must pass it.
 */
export interface Transport {
  readonly name: string;
  readonly features: ReadonlySet<TransportFeature>;
  publisher(): Publisher;
  /** Resolves once the group has been joined; rejects when that is not possible now (unknown topic, no right, no broker). */
  subscribe(options: SubscribeOptions): Promise<Subscription>;
  /**
   * Feature `topics`. What is wrong with these topics for somebody who publishes to them; empty if nothing is. It changes
   * nothing. Rejects when that cannot be found out now (no broker, no right to ask).
   */
  topicProblems?(topics: readonly string[], needs: TopicNeeds): Promise<TopicProblem[]>;
  /**
   * Feature `times`. How long the broker keeps what it keeps: of several topics the longest, of several brokers too. Rejects
   * when that cannot be found out now (no such topic, no broker, no right to ask): a guess could be too short.
   */
  topicTimes?(topics: readonly string[]): Promise<BrokerTimes>;
  /** Closes every publisher and subscription that it made. Bounded in time, also when the broker is gone. */
  close(): Promise<void>;
}

/**
 * - `positions`: deliveries carry a position, and settled means a contiguous run of them
 * - `seek`: we choose where a lane starts (`onAssigned`)
 * - `pause`: one lane can be paused while the others go on
 * - `assignment`: lanes are shared out among the members of a group, and move
 * - `topics`: it can say what is wrong with a topic before anything is published (`topicProblems`)
 * - `times`: it can say how long records are kept (`topicTimes`)
 */
export type TransportFeature = 'positions' | 'seek' | 'pause' | 'assignment' | 'topics' | 'times';

export interface TopicNeeds {
  /** Of the largest record that will be published, with its key, its headers and what the protocol adds to them. */
  recordBytes: number;
}

/**
 * - `missing`: there is no such topic
 * - `compacted`: the broker deletes a record when a newer one of its key comes, whether it was read or not
 * - `small`: the largest record that may come would not be taken
 * - `weak`: all is taken, and what was acknowledged can be lost together with one or two machines
 */
export interface TopicProblem {
  topic: string;
  kind: 'missing' | 'compacted' | 'small' | 'weak';
  /** In words, with the setting and its value. */
  detail: string;
}

export interface BrokerTimes {
  /** Of the topic with the longest; Infinity if it deletes nothing by age. */
  retentionMs: number;
  /** The broker deletes whole segments, by their newest record. */
  segmentMs: number;
  /** How often it looks for what to delete. */
  checkIntervalMs: number;
  /** A group that is away for longer begins anew. */
  offsetsRetentionMs: number;
}

export interface OutgoingRecord {
  topic: string;
  /** Records with one key keep their order. */
  key: string;
  value: Uint8Array;
  headers?: Readonly<Record<string, string>>;
}

export interface Publisher {
  /**
   * Sends the records and answers with one outcome for each, at the same index. It makes one bounded
   * attempt and never rejects for a record's sake (only `TP_CLOSED`); trying again is the caller's decision.
   *
   * Order: within one key, the acknowledged records of a call are a prefix of those that were given,
   * and a call that follows is behind every call that has answered. One call at a time for one key.
   */
  publish(records: readonly OutgoingRecord[]): Promise<PublishOutcome[]>;
  close(): Promise<void>;
}

/**
 * - `acknowledged`: all in-sync replicas have it
 * - `rejected`: this record can never be published as it is; its key has to wait for a person
 * - `refused`: nothing can be published there now (unknown topic, no right to write): wait and alarm
 * - `unknown`: it may or may not be written; publish it again, with the same id
 * - `withheld`: not sent, because an earlier record of its key, or of its lane, was not acknowledged
 */
export type PublishOutcome =
  | { outcome: 'acknowledged'; position?: Position }
  | { outcome: 'rejected' | 'refused' | 'unknown'; error: TwiceproofError }
  | { outcome: 'withheld' };

/** A strand of records in order: a Kafka partition, or a queue (then `partition` is 0). */
export interface Lane {
  topic: string;
  partition: number;
}

export interface Position extends Lane {
  offset: bigint;
}

export interface Delivery {
  lane: Lane;
  key: Uint8Array | undefined;
  /** Empty also where the broker has no value at all (a tombstone). */
  value: Uint8Array;
  /** In the order on the wire; a name may come twice. */
  headers: readonly (readonly [name: string, value: Uint8Array])[];
  /** Feature `positions`. */
  position?: Position;
}

export interface Batch {
  lane: Lane;
  deliveries: readonly Delivery[];
  /** Aborted when the lane is taken away: roll back what is under way, `settle` would answer `stale`. */
  signal: AbortSignal;
}

export interface Subscription {
  /**
   * The next batch, all of one lane and in its order; undefined when none came in time. A lane whose
   * last batch is not wholly settled is not handed out again, so each lane has one batch in flight.
   */
  receive(options: ReceiveOptions): Promise<Batch | undefined>;
  /**
   * These are done for good: their effects are committed, and they need not come again. `stale`: the
   * lane was taken away, or the broker did not confirm in time (then the lane is given up). They may
   * come again, here or elsewhere, and may not, since a broker can record what it had no time to
   * confirm: never undo an effect because of it. With `positions` only the contiguous run from the
   * lane's start is recorded; what is settled beyond a gap is kept until the gap closes.
   */
  settle(deliveries: readonly Delivery[]): Promise<'settled' | 'stale'>;
  /** Feature `pause`. A lane that is taken away and comes back is not paused any more. */
  pause?(lane: Lane): void;
  resume?(lane: Lane): void;
  /** What was received and not settled comes again, here or elsewhere. */
  close(): Promise<void>;
}

export interface ReceiveOptions {
  maxRecords: number;
  /** How long to wait for the first record. */
  waitMs: number;
  signal?: AbortSignal;
}

export interface SubscribeOptions {
  /** Members of one group share the lanes; each group gets every record. */
  group: string;
  topics: readonly string[];
  /**
   * Features `assignment` and `seek`. Called for the lanes that are now ours, before any of their
   * records; it answers where each starts. A lane that is left out, and every lane when this is not
   * given, starts at its group's committed offset, or at the earliest record; never at the latest.
   * A position outside the log becomes the earliest, with `TP_POSITION_LOST`. If it throws, the lanes
   * are given back and joined for again after a while.
   */
  onAssigned?(lanes: readonly AssignedLane[]): Promise<readonly Position[]>;
  /** Feature `assignment`. The lanes are gone: their batches' signals are aborted before this is called. */
  onRevoked?(lanes: readonly Lane[]): Promise<void>;
  /**
   * Why nothing comes at present, or what was found to be lost. The subscription mends itself, so
   * this is for alarms; it is never called for a message's sake.
   */
  onTrouble?(error: TwiceproofError): void;
  /**
   * How long the broker may be left untold of what is settled; `settle` does not wait for it then. For whoever keeps
   * positions of his own: what it was not told comes again. Defaults to 0: `settle` answers when it knows.
   */
  offsetsEveryMs?: number;
}

export interface AssignedLane extends Lane {
  /** Tells a topic from one of the same name that was created later. */
  topicId: string;
  /** What the group has settled, if it ever did. */
  committed: bigint | undefined;
  earliest: bigint;
  /** The offset after the last record. */
  end: bigint;
}
