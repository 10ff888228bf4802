/** What an application hands to the outbox: a fact about one aggregate, to be published once it is committed. */
export interface Message {
  topic: string;
  /** The record key on the wire. Messages of one aggregate keep their order. */
  aggregateId: string;
  /** What happened, for example `order.created`. */
  type: string;
  /** The bytes that travel, unchanged: what is stored is what is sent. */
  payload: Uint8Array;
  headers?: Readonly<Record<string, string>>;
}

/**
 * The id by which a message is recognised when it comes again. A UUIDv7 made when the outbox row is
 * written and never changed: not an offset, not a sequence, not a hash of the content, because each
 * of those can name two messages, or rename one.
 */
export type MessageId = string;

/** What every broker takes as a name: letters, digits, dots, hyphens and underscores. */
export function isTopicName(name: string): boolean {
  return /^[\w.-]{1,249}$/.test(name) && name !== '.' && name !== '..';
}
