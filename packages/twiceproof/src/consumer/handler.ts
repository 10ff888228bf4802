import { TwiceproofError } from '../errors.ts';
import { withCauses } from '../failure.ts';
import type { Tx } from '../tx.ts';
import type { ReceivedMessage } from '../wire.ts';
import { within } from '../within.ts';

/**
 * What a consumer does with messages that it has not seen, in one of two shapes. All of it goes through `tx`: what is
 * written there is committed together with the inbox rows, or not at all. Mail or a call to another service cannot be
 * rolled back, so they go through the consumer's own outbox (`append(tx, ...)`), with a key made of the message's id.
 *
 * Messages come in the order of their lane. One that throws is found by halving its batch; what it threw decides:
 *
 * - the database is away, another transaction was in the way, or a table, a column or a right is missing: all of it is tried
 *   again, for as long as it takes
 * - an error whose `retryable` is true, a service of its own that cannot be reached, or it took too long: it is tried
 *   again, for `retryForMs`, and then held
 * - anything else: the message is held
 */
export type Handler = HandlerOfEach | HandlerOfSets;

export interface HandlerOfEach {
  /** One message at a time. */
  each(tx: Tx, message: ReceivedMessage): Promise<void>;
}

export interface HandlerOfSets {
  /** All new messages of a batch, for statements that deal with many rows at once. It may run again on a part of them. */
  set(tx: Tx, messages: readonly ReceivedMessage[]): Promise<void>;
}

/** Whether it is one, for those who have no types. */
export function isHandler(given: unknown): given is Handler {
  const handler = Object(given) as { each?: unknown; set?: unknown };
  return typeof ('set' in handler ? handler.set : handler.each) === 'function';
}

async function runHandler(
  handler: Handler,
  tx: Tx,
  messages: readonly ReceivedMessage[],
  isOver: () => boolean,
): Promise<void> {
  if (messages.length === 0) return;
  if ('set' in handler) return handler.set(tx, messages);
  for (const message of messages) {
    // Its transaction is rolled back, and somebody may be running the same messages anew.
    if (isOver()) return;
    await handler.each(tx, message);
  }
}

export async function runHandlerInTime(
  handler: Handler,
  tx: Tx,
  messages: readonly ReceivedMessage[],
  timeoutMs: number,
): Promise<void> {
  let isOver = false;
  const work = runHandler(handler, tx, messages, () => isOver);
  try {
    await inTime(timeoutMs, `${messages.length} messages`, work);
  } finally {
    isOver = true;
  }
}

/**
 * What does not come back is left where it is: its transaction is rolled back, and whatever it still sends through its
 * `tx` is refused.
 */
export async function inTime(timeoutMs: number, what: string, work: Promise<void>): Promise<void> {
  await within(timeoutMs, work, () => new TwiceproofError('TP_HANDLER_SLOW', `${what} took more than ${timeoutMs} ms`));
}

/** `isOurs` tells of an error whether it came from this transaction. */
export function watchTx(tx: Tx): { tx: Tx; isOurs(error: unknown): boolean } {
  const seen = new WeakSet<object>();
  const watched: Tx = {
    ...tx,
    query: async (text, values) => {
      try {
        return await tx.query(text, values);
      } catch (error) {
        if (typeof error === 'object' && error !== null) seen.add(error);
        throw error;
      }
    },
  };
  const isOurs = (error: unknown): boolean => withCauses(error).some((each) => seen.has(each as object));
  return { tx: watched, isOurs };
}
