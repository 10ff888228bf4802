import { failureOf } from '../failure.ts';
import type { Reply } from '../edge/reply.ts';
import { parseIdempotencyKey } from './idempotency-key.ts';
import type { HttpAnswer } from './answer.ts';
import { problem, type ProblemName } from './problem.ts';

/** One request that has been answered, for metrics and for whoever has to know of an error. */
export interface Seen {
  operation: string;
  /** `first`: it was carried out now. Everything else changed nothing; `not-stored` is an answer that a handler gave to that. */
  outcome: 'first' | 'replayed' | 'not-stored' | ProblemName;
  status: number;
  durationMs: number;
  /** What `internal`, `unavailable` and `outcome-unknown` come from; a client is never told. */
  error?: unknown;
}

export interface DoorOptions<R> {
  /**
   * The tenant or the authenticated caller: what the server has found out, never what a client merely says. Keys belong
   * to it. Undefined is answered by 401: nobody is anonymous here. Asked each time, so a right that was lost is lost
   * for replays too.
   */
  principal(request: R): string | undefined | Promise<string | undefined>;
  /** Without it errors that a client is not told are printed, so that somebody is. */
  observe?(seen: Seen): void;
  /** Adds `idempotent-replayed: true` to a replay, which can then be told from the original. Defaults to false. */
  replayHeader?: boolean;
}

/** An answer, and what is to be said of it. */
export interface Told {
  answer: HttpAnswer;
  outcome: Seen['outcome'];
  error?: unknown;
}

export function told(name: ProblemName, about?: { detail?: string; afterMs?: number }): Told {
  return { answer: problem(name, about), outcome: name };
}

/** What a door answers to everything but an answer. */
export function toldOf(reply: Exclude<Reply, { outcome: 'answered' }>): Told {
  switch (reply.outcome) {
    case 'mismatch':
      return told('key-reused');
    case 'expired':
      return told('key-expired');
    case 'busy':
      return told('busy', { afterMs: reply.retryAfterMs });
  }
}

/** Who asks, and under which key; or why that cannot be said. */
export function callerOf(
  principal: string | undefined,
  keyLines: readonly string[],
): { principal: string; key: string } | { problem: ProblemName } {
  if (!principal) return { problem: 'unauthenticated' };
  const parsed = parseIdempotencyKey(keyLines);
  return 'key' in parsed ? { principal, key: parsed.key } : parsed;
}

const problemOfFailure = {
  'outcome-unknown': 'outcome-unknown',
  unavailable: 'unavailable',
  unexpected: 'internal',
} as const satisfies Record<ReturnType<typeof failureOf>, ProblemName>;

/** Around each request: an error becomes a problem without its details, and what came of it is told to `observe`. */
export async function observed<R>(
  operation: string,
  { observe, replayHeader }: DoorOptions<R>,
  work: () => Promise<Told>,
): Promise<HttpAnswer> {
  const began = performance.now();
  const { answer, outcome, error } = await toldBy(work);
  const durationMs = performance.now() - began;
  if (error !== undefined && !observe) console.error(`twiceproof/http: ${operation}: ${outcome}:`, error);
  try {
    observe?.({ operation, outcome, status: answer.status, durationMs, ...(error !== undefined && { error }) });
  } catch (cause) {
    // It is done, or it is not: what an observer throws changes no answer.
    process.emitWarning(`twiceproof/http: observe has thrown: ${String(cause)}`);
  }
  if (!replayHeader || outcome !== 'replayed') return answer;
  return { ...answer, headers: { ...answer.headers, 'idempotent-replayed': 'true' } };
}

async function toldBy(work: () => Promise<Told>): Promise<Told> {
  try {
    return await work();
  } catch (cause) {
    return { ...told(problemOfFailure[failureOf(cause)]), error: cause };
  }
}

/**
 * The values of Idempotency-Key in Node's `rawHeaders`, one for each line: Node itself would join two into one. Older
 * Nodes leave out what stands behind the first thousand lines, without a word; a second key may be there, so it is as
 * if it were.
 */
export function keyLinesOf(rawHeaders: readonly string[]): string[] {
  if (rawHeaders.length >= 2 * maxHeaderLines) return ['', ''];
  const lines: string[] = [];
  for (let n = 0; n < rawHeaders.length; n += 2) {
    const name = rawHeaders[n]!;
    if (name.length === keyHeader.length && name.toLowerCase() === keyHeader) lines.push(rawHeaders[n + 1]!);
  }
  return lines;
}

const maxHeaderLines = 1_000;
export const keyHeader = 'idempotency-key';
