/**
 * How old a message can be when it comes again: the inbox has to remember at least as long. The age is that of its id,
 * which was made when it was appended to the outbox, so the wait there counts too.
 */
import { TwiceproofError } from '../errors.ts';
import type { BrokerTimes } from '../transport.ts';

export interface HorizonOptions {
  /** The longest that a message may wait in the outbox: an outage, or parked. Defaults to 24 hours. */
  outboxWaitMs?: number | undefined;
  /** How far back operators may replay, if that is more than the broker keeps, or the broker keeps all. Defaults to none. */
  replayWindowMs?: number | undefined;
  /** By how much clocks may differ. Defaults to 10 minutes. */
  clockMarginMs?: number | undefined;
}

export interface Horizon {
  horizonMs: number;
  /** How it comes about, for people. */
  why: string;
}

const hourMs = 3_600_000;
/** A clock that is wrong by less than this is normal. */
export const usualClockMarginMs = hourMs / 6;

export function redeliveryHorizon(broker: BrokerTimes, options: HorizonOptions = {}): Horizon {
  const { outboxWaitMs = 24 * hourMs, replayWindowMs = 0, clockMarginMs = usualClockMarginMs } = options;
  const { segmentMs, checkIntervalMs, offsetsRetentionMs } = broker;
  const retentionMs = broker.retentionMs < 0 ? Infinity : broker.retentionMs;
  if (retentionMs === Infinity && replayWindowMs === 0) {
    throw new TwiceproofError(
      'TP_HORIZON',
      'the topic keeps messages for ever (retention.ms = -1), so one of any age can come again; say how far back operators may replay',
    );
  }
  // Where the broker keeps all, the window that was given is what is promised.
  const inTopicMs = retentionMs === Infinity ? 0 : retentionMs + segmentMs + checkIntervalMs;
  const awayMs = Math.max(inTopicMs, offsetsRetentionMs, replayWindowMs);
  const inTopic =
    retentionMs === Infinity
      ? 'kept for ever'
      : `${hours(retentionMs)} retention + ${hours(segmentMs)} segment + ${hours(checkIntervalMs)} until the broker looks`;
  const away = `${inTopic}, ${hours(offsetsRetentionMs)} until a group is forgotten, ${hours(replayWindowMs)} replay window`;
  return {
    horizonMs: outboxWaitMs + awayMs + clockMarginMs,
    why: `${hours(outboxWaitMs)} in the outbox + the longest of (${away}) + ${hours(clockMarginMs)} for clocks`,
  };
}

/** Refuses a time to live under which a message that was forgotten can still come again. */
export function requireTtl(ttlMs: number, { horizonMs, why }: Horizon): void {
  if (ttlMs >= horizonMs) return;
  throw new TwiceproofError(
    'TP_HORIZON',
    `${hours(ttlMs)} are kept, and a message can come again for ${hours(horizonMs)}: ${why}`,
  );
}

function hours(ms: number): string {
  return `${Number((ms / hourMs).toFixed(2))} h`;
}
