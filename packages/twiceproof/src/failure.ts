/** What a door can tell a client whose request ended in an error. */
export type Failure =
  /** It may be done or not; the same key finds out. */
  | 'outcome-unknown'
  /** The database cannot be reached, or takes nothing now. Nothing of the request is done. */
  | 'unavailable'
  /** A bug, of ours or of the operation. Nothing of the request is done. */
  | 'unexpected';

const networkCodes: ReadonlySet<unknown> = new Set([
  'EAI_AGAIN',
  'ECONNABORTED',
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTDOWN',
  'EHOSTUNREACH',
  'ENETDOWN',
  'ENETUNREACH',
  'ENOTFOUND',
  'EPIPE',
  'ETIMEDOUT',
]);

export function failureOf(error: unknown): Failure {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  if (code === 'TP_COMMIT_UNKNOWN') return 'outcome-unknown';
  // Classes of SQLSTATE: connection, resources, operator, system; 25P03: we stood still for too long;
  // 25006: this is a standby now. Then Node's, but only those of a network: a handler's ENOENT is its own.
  if (/^(08|53|57|58)[0-9A-Z]{3}$|^25P03$|^25006$/.test(String(code)) || networkCodes.has(code)) return 'unavailable';
  // node-postgres gives these no code.
  const isLost =
    /^Connection terminated|^timeout exceeded when|^Query read timeout|connection error and is not queryable/;
  return isLost.test(String(message)) ? 'unavailable' : 'unexpected';
}

const longestChain = 5;

/** An error and what it was made of: handlers, and libraries that they use, wrap what they were told. */
export function withCauses(error: unknown): unknown[] {
  const chain = [error];
  for (let at = error; chain.length < longestChain; chain.push(at)) {
    at = (at as { cause?: unknown } | null | undefined)?.cause;
    if (at === undefined || at === null) break;
  }
  return chain;
}
