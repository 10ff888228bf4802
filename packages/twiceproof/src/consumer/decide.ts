import { failureOf } from '../failure.ts';

/** The handler threw, or what it wrote could not be committed: the message is to blame, and not the database. */
export class HandlerError extends Error {
  constructor(cause: unknown) {
    super('the handler failed', { cause });
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
  part: { messages: number; /** Of this part, this one included. */ failures: number; attempts: number },
): 'again' | 'halve' | 'hold' {
  if (!(error instanceof HandlerError) || isElsewhere(error.cause)) return 'again';
  if (part.messages > 1) return 'halve';
  return mayPass(error.cause) && part.failures < part.attempts ? 'again' : 'hold';
}

/** The database, the network or another transaction: nothing that the message could help. */
export function isElsewhere(error: unknown): boolean {
  const code = codeOf(error);
  if (isTooSlow.has(code)) return false;
  return failureOf(error) !== 'unexpected' || code === '40001' || code === '40P01' || code === 'TP_INBOX_EXPIRED';
}

/** A statement ran out of time, or did not get its lock: perhaps because of others, and perhaps always with this message. */
const isTooSlow: ReadonlySet<unknown> = new Set(['57014', '55P03']);

function mayPass(error: unknown): boolean {
  return isTooSlow.has(codeOf(error)) || (error as { retryable?: unknown } | null | undefined)?.retryable === true;
}

function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null | undefined)?.code;
}
