import { isPassing } from '../connection.ts';
import { failureOf, withCauses } from '../failure.ts';

/** The handler threw, or what it wrote could not be committed: the message is to blame, unless its database is. */
export class HandlerError extends Error {
  /** Whether it comes from the transaction that the handler was given, and not from something of its own. */
  readonly ofDatabase: boolean;
  /** It was what is told of held messages that failed: which one it is about is found as with a handler, and then it waits. */
  readonly ofOnHeld: boolean;

  constructor(cause: unknown, ofDatabase: boolean, ofOnHeld = false) {
    super(ofOnHeld ? 'onHeld failed' : 'the handler failed', { cause });
    this.ofDatabase = ofDatabase;
    this.ofOnHeld = ofOnHeld;
  }
}

/**
 * What to do about a part of a batch that failed:
 *
 * - `again`: the same once more, after a pause. Where nothing of it is the message's fault, for as long as it takes.
 * - `halve`: one of its messages is the culprit, and which one is found by halving.
 * - `hold`: the one message of this part is it, and stays it.
 */
export function decide(
  error: unknown,
  part: { messages: number; /** Since it failed for the first time. */ failingMs: number; retryForMs: number },
): 'again' | 'halve' | 'hold' {
  if (!isOfMessage(error)) return 'again';
  if (part.messages > 1) return 'halve';
  if (error.ofOnHeld) return 'again';
  return mayPass(error.cause) && part.failingMs < part.retryForMs ? 'again' : 'hold';
}

/** Whether the message may be to blame. */
export function isOfMessage(error: unknown): error is HandlerError {
  return error instanceof HandlerError && !(error.ofDatabase && isElsewhere(error.cause));
}

/**
 * The database, the network or another transaction: nothing that the message could help. Nor can it help that a table, a
 * column or a right is missing: that is so with all messages, and to hold them one by one would empty the topic.
 */
export function isElsewhere(error: unknown): boolean {
  if (isTooSlow(error)) return false;
  return isPassing(error) || withCauses(error).some((each) => failureOf(each) !== 'unexpected' || isMissing(each));
}

/** Insufficient privilege; undefined column, function, table, schema. */
function isMissing(error: unknown): boolean {
  return ['42501', '42703', '42883', '42P01', '3F000'].includes(String(codeOf(error)));
}

/** A statement ran out of time, or did not get its lock: perhaps because of others, and perhaps always with this message. */
function isTooSlow(error: unknown): boolean {
  return withCauses(error).some((each) => {
    const { message } = (each ?? {}) as { message?: unknown };
    return tooSlow.has(codeOf(each)) || String(message).startsWith('Query read timeout');
  });
}

const tooSlow: ReadonlySet<unknown> = new Set(['57014', '55P03', 'TP_HANDLER_SLOW']);

/** Also a service of its own that cannot be reached: that may be always so with this message. */
function mayPass(error: unknown): boolean {
  const { retryable } = (error ?? {}) as { retryable?: unknown };
  return isTooSlow(error) || retryable === true || withCauses(error).some(isUnreachable);
}

/** `fetch` wraps what the network said, has codes of its own for some of it, and a signal that ends it has only a name. */
function isUnreachable(error: unknown): boolean {
  const { name } = (error ?? {}) as { name?: unknown };
  if (failureOf(error) === 'unavailable' || name === 'TimeoutError') return true;
  return /^UND_ERR_(SOCKET|\w+_TIMEOUT)$/.test(String(codeOf(error)));
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null | undefined)?.code;
}
