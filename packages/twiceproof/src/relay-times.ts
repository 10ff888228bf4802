import { TwiceproofError } from './errors.ts';
import { longestTimerMs } from './within.ts';

/**
 * How long a relay may hold what it publishes. A relay that stands still is freed of its place by the server (the second),
 * or by another relay (the third), and either must come after the first, or a relay that is only slow would be taken
 * for one that stands still and its work would be done twice, again and again.
 */
export interface RelayTimes {
  /** For publishing a batch. Defaults to 15,000. */
  publishDeadlineMs: number;
  /** The server ends a transaction that was idle for so long: a relay that was stopped loses its place. Defaults to 30,000. */
  idleTimeoutMs: number;
  /**
   * Relays end the connection of another one whose transaction is older: while the server waits for a client to take
   * what it sends, no timeout of its own comes. Defaults to 45,000.
   */
  watchdogMs: number;
}

const defaults: RelayTimes = { publishDeadlineMs: 15_000, idleTimeoutMs: 30_000, watchdogMs: 45_000 };

export function relayTimes(options: Partial<RelayTimes> = {}): RelayTimes {
  const times = { ...defaults, ...options };
  const { publishDeadlineMs, idleTimeoutMs, watchdogMs } = times;
  const isOrdered = publishDeadlineMs > 0 && publishDeadlineMs < idleTimeoutMs && idleTimeoutMs < watchdogMs;
  // The server takes no longer timeout either.
  if (isOrdered && watchdogMs <= longestTimerMs) return times;
  throw new TwiceproofError(
    'TP_OPTION',
    `0 < publishDeadlineMs < idleTimeoutMs < watchdogMs < 2^31 is needed, not ${publishDeadlineMs}, ${idleTimeoutMs}, ${watchdogMs}`,
  );
}
