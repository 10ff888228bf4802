/** Figures of a round of the inbox as they might be, for the tests of what is made from them. */
import type { ConsumeRun } from './consume.ts';
import type { Beside, Forgetting } from './expiry.ts';
import type { InboxRound } from './inbox.ts';
import type { KeysRun } from './keys.ts';
import type { LatencyRun } from './latency.ts';

export interface Changed {
  set?: number;
  largeP99Us?: number;
  largeDetachMs?: number;
  largeExpiryMs?: number;
  largeWalBytes?: number;
  longestMs?: number;
  longestOpenMs?: number;
  p99Ms?: number;
  fastP99Ms?: number;
  wrongCharges?: number;
  notCharged?: number;
}

export function exampleInboxRound(changed: Changed = {}): InboxRound {
  const run = (perSecond: number, wrongCharges = 0): ConsumeRun => ({
    perSecond,
    messages: 30_000,
    cpuUs: { node: 30, postgres: 20, brokers: 10 },
    wrongCharges,
    otherCores: 0.05,
  });
  const keys = (count: number, insertP99Us: number): KeysRun => ({
    keys: count,
    insertP50Us: 3_000,
    insertP99Us,
    transactionP99Us: 9_000,
    walBytes: 230,
    heapBytes: 76,
    indexBytes: 49.5,
  });
  const forgetting = (detachMs: number, expiryMs: number, expiryWalBytes: number): Forgetting => ({
    detachMs,
    expiryMs,
    expiryWalBytes,
    deleteMs: 400,
    deleteWalBytes: 30_000_000,
  });
  const beside = (longestAcceptMs: number): Beside => ({
    expiryMs: 40,
    lockWaits: 0,
    passes: 1,
    longestAcceptMs,
    longestBeforeMs: 9,
    accepts: 7,
    refused: 0,
    messagesPerSecond: 1_000,
  });
  const latency = (p99Ms: number): LatencyRun => ({
    p50Ms: 20,
    p99Ms,
    relayP50Ms: 11,
    relayP99Ms: 30,
    batchP50Ms: 5,
    cpuUs: { payments: 100, relay: 60, postgres: 90, brokers: 150 },
  });
  return {
    consume: {
      discard: run(60_000),
      raw: run(50_000),
      ways: {
        textbook: { 0: run(1_000), 30: run(1_100) },
        each: { 0: run(2_500), 30: run(2_900) },
        set: { 0: run(changed.set ?? 15_000, changed.wrongCharges), 5: run(15_500), 30: run(17_000), 100: run(20_000) },
      },
    },
    keys: {
      'partitioned-1000000': keys(1_300_000, 4_000),
      'partitioned-10000000': keys(10_300_000, changed.largeP99Us ?? 4_400),
      'plain-1000000': keys(1_300_000, 4_100),
      'random-1000000': keys(1_300_000, 9_000),
    },
    expiry: {
      small: forgetting(8, 15, 18_000),
      large: forgetting(changed.largeDetachMs ?? 9, changed.largeExpiryMs ?? 20, changed.largeWalBytes ?? 19_000),
      loaded: beside(changed.longestMs ?? 12),
      open: beside(changed.longestOpenMs ?? 14),
    },
    latency: {
      rates: { 1000: latency(changed.p99Ms ?? 60), 5000: latency(changed.fastP99Ms ?? 120) },
      wrongCharges: changed.notCharged ?? 0,
      writerLatenessP99Ms: 3,
      otherCores: 0.05,
      stolenShare: 0.001,
    },
  };
}
