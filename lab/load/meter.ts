/** Counts and latencies of a run, in all and second by second. */
import { clear, createHistogram, merge, record, summarize, type Histogram, type Summary } from './histogram.ts';
import type { DoorKind, Reason } from './line.ts';
import type { Send } from './plan.ts';
import type { Verdict } from './verdict.ts';

export interface Counts {
  intents: number;
  /** Requests whose time came: sent, dropped or expired. */
  due: number;
  sent: number;
  /** Of those sent: an attempt with a key that had been sent before. */
  retries: number;
  answered: number;
  ok: number;
  fail: number;
  unknown: number;
  /** Connections that we cut because the plan says so; their outcome is unknown, and no error. */
  cut: number;
  /** Neither ok nor cut. */
  errors: number;
  /** Never sent, for their timeout had passed while they waited for a connection. */
  expired: number;
  /** Never sent, for too many waited. */
  dropped: number;
  /** Changes that were never sent: no create of their order was answered while the schedule lasted. */
  skipped: number;
  /** By the status of HTTP, or the code of gRPC behind its name. */
  byStatus: Record<string, number>;
  /** Of the invocations without an answer. */
  byReason: Record<string, number>;
}

/** One second of the run; latencies are those of the answers that came in it. */
export interface Second {
  second: number;
  sent: number;
  answered: number;
  errors: number;
  waiting: number;
  inFlight: number;
  latency: Summary;
}

export interface Meter {
  counts: Counts;
  seconds: Second[];
  sent(send: Send): void;
  over(send: Send, door: DoorKind, verdict: Verdict, status: number, reason: Reason, nowMs: number): void;
  expired(send: Send, nowMs: number): void;
  /** Between the intended time and the moment that this process looked: the generator's own share. */
  late(ms: number): void;
  endSecond(waiting: number, inFlight: number): Second;
  histograms(): Record<'all' | 'first' | 'retry' | 'hot' | 'cold' | 'lateness', Histogram>;
}

export function createMeter(warmupMs: number): Meter {
  const counts = noCounts();
  // Retry or not, hot or not: four that do not overlap, from which the others are merged.
  const classes = [createHistogram(), createHistogram(), createHistogram(), createHistogram()] as const;
  const lateness = createHistogram();
  const current = createHistogram();
  const seconds: Second[] = [];
  let atSecondStart = { sent: 0, answered: 0, errors: 0 };

  const latency = (send: Send, nowMs: number): void => {
    // Asked after the schedule, as fast as it goes: nobody waits for it.
    if (send.kind === 'settle') return;
    const ms = nowMs - send.dueMs;
    record(current, ms);
    if (send.dueMs < warmupMs) return;
    record(classes[((send.firstOfKey ? 0 : 1) + (send.hottest ? 2 : 0)) as 0 | 1 | 2 | 3], ms);
  };

  return {
    counts,
    seconds,
    sent({ firstOfKey }) {
      counts.sent++;
      if (!firstOfKey) counts.retries++;
    },
    over(send, door, verdict, status, reason, nowMs) {
      counts[verdict]++;
      if (reason === 'answered') {
        counts.answered++;
        const name = door === 'http' ? status : `grpc ${status}`;
        counts.byStatus[name] = (counts.byStatus[name] ?? 0) + 1;
      } else counts.byReason[reason] = (counts.byReason[reason] ?? 0) + 1;
      if (reason === 'cut') counts.cut++;
      else if (verdict !== 'ok') counts.errors++;
      // A timeout took at least that long; leaving it out would make a dead server look fast.
      if (reason === 'answered' || reason === 'timeout' || reason === 'no-connection') latency(send, nowMs);
    },
    expired(send, nowMs) {
      counts.expired++;
      counts.errors++;
      latency(send, nowMs);
    },
    late: (ms) => record(lateness, ms),
    endSecond(waiting, inFlight) {
      const { sent, answered, errors } = counts;
      const second: Second = {
        second: seconds.length + 1,
        sent: sent - atSecondStart.sent,
        answered: answered - atSecondStart.answered,
        errors: errors - atSecondStart.errors,
        waiting,
        inFlight,
        latency: summarize(current),
      };
      atSecondStart = { sent, answered, errors };
      clear(current);
      seconds.push(second);
      return second;
    },
    histograms: () => ({
      all: merge(classes),
      first: merge([classes[0], classes[2]]),
      retry: merge([classes[1], classes[3]]),
      hot: merge([classes[2], classes[3]]),
      cold: merge([classes[0], classes[1]]),
      lateness,
    }),
  };
}

function noCounts(): Counts {
  return {
    intents: 0,
    due: 0,
    sent: 0,
    retries: 0,
    answered: 0,
    ok: 0,
    fail: 0,
    unknown: 0,
    cut: 0,
    errors: 0,
    expired: 0,
    dropped: 0,
    skipped: 0,
    byStatus: {},
    byReason: {},
  };
}
