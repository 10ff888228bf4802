/** What `/metrics` tells of a run. */
import type { Metrics } from '@twiceproof/program/metrics';
import type { DoorKind, Reason } from './line.ts';
import type { Send } from './plan.ts';
import type { Verdict } from './verdict.ts';

export interface Watch {
  sent(): void;
  over(send: Send, door: DoorKind, verdict: Verdict, reason: Reason, nowMs: number): void;
  unsent(reason: 'expired' | 'dropped'): void;
}

export interface Backlog {
  waiting(): number;
  inFlight(): number;
  unsettled(): number;
}

export function watchRun(metrics: Metrics, { waiting, inFlight, unsettled }: Backlog): Watch {
  const sent = metrics.total(
    'load_sent_total',
    'Requests that were sent, retries included; its rate is the request rate.',
  );
  const unsent = metrics.counter('load_unsent_total', 'Requests that were due and never sent.', ['reason']);
  // Counts and latencies in one: two would cost each request twice as much.
  const durations = metrics.histogram(
    'load_request_duration_seconds',
    'From the intended send time to the end, by what became of it and why.',
    ['door', 'operation', 'outcome', 'reason'],
  );
  metrics.gauge('load_waiting_requests', 'Requests that are due and wait for a connection.', waiting);
  metrics.gauge('load_in_flight_requests', 'Requests that are sent and not over.', inFlight);
  metrics.gauge('load_unsettled_keys', 'Keys of which nobody knows yet whether they were carried out.', unsettled);
  return {
    sent: () => sent(1),
    over: ({ operation, dueMs }, door, verdict, reason, nowMs) =>
      durations((nowMs - dueMs) / 1_000, door, operation, verdict, reason),
    unsent,
  };
}
