import { redeliveryHorizon, requireTtl } from 'twiceproof/inbox/horizon';
import type { BrokerTimes } from 'twiceproof/transport';
import { msOf, type PaymentsFlags } from './flags.ts';

/** How long the inbox remembers, and why that is enough. */
export interface Retention {
  ttlMs: number;
  /** Infinity where a message of any age can come again, and an experiment goes on all the same. */
  horizonMs: number;
  why: string;
  partitionMs: number;
  /** How far ahead partitions are made: narrow ones are for experiments, and thousands of them would be slow. */
  aheadMs: number;
  intervalMs: number;
}

const usualAheadMs = 48 * 3_600_000;
const usualIntervalMs = 60_000;
const partitionsAhead = 50;

/** Throws `TP_HORIZON` where a message that was forgotten could come again, unless that is what is wanted. */
export function decideRetention(times: BrokerTimes, given: PaymentsFlags): Retention {
  const partitionMs = msOf(given['partition-width'])!;
  const wantedMs = given['dedup-ttl'] === undefined ? undefined : msOf(given['dedup-ttl'])!;
  const around = {
    partitionMs,
    aheadMs: Math.min(usualAheadMs, partitionsAhead * partitionMs),
    intervalMs: Math.min(usualIntervalMs, partitionMs),
  };
  const isForEver = times.retentionMs === Infinity && given['replay-window'] === undefined;
  if (given['unsafe-ttl'] && wantedMs !== undefined && isForEver) {
    return { ...around, ttlMs: wantedMs, horizonMs: Infinity, why: 'the topic keeps messages for ever' };
  }
  const horizon = redeliveryHorizon(times, {
    outboxWaitMs: msOf(given['outbox-wait']),
    replayWindowMs: given['replay-window'] === undefined ? undefined : msOf(given['replay-window']),
  });
  // The floor stands at the beginning of a partition, never above what is to be remembered; one more is room for a TTL
  // that is set to the horizon by hand, and for a horizon that grows a little.
  const ttlMs = wantedMs ?? horizon.horizonMs + partitionMs;
  if (!given['unsafe-ttl']) requireTtl(ttlMs, horizon);
  return { ...around, ...horizon, ttlMs };
}

export function inDays(ms: number): string {
  return ms < 3_600_000 ? `${Number((ms / 1_000).toFixed(1))} s` : `${Number((ms / 86_400_000).toFixed(2))} days`;
}
