import type { Metrics } from '@twiceproof/program/metrics';

export type Door = 'http' | 'grpc';

interface Seen {
  operation: string;
  outcome: string;
  durationMs: number;
  error?: unknown;
}

/** While the database is away every request fails in the same way; one line a second says so too. */
const quietMs = 1_000;

/** What the doors report goes into the metrics, and errors to `log`, without a word of the request. */
export function watchDoors(metrics: Metrics, log: (line: string) => void): (door: Door) => (seen: Seen) => void {
  const requests = metrics.counter('orders_requests_total', 'Requests by what became of them.', [
    'door',
    'operation',
    'outcome',
  ]);
  const keys = metrics.counter('orders_idempotency_total', 'Answers: hit is a replay, miss was carried out now.', [
    'operation',
    'result',
  ]);
  const durations = metrics.histogram('orders_request_duration_seconds', 'From the read request to the answer.', [
    'door',
    'operation',
  ]);
  let loggedAt = -quietMs;
  return (door) =>
    ({ operation, outcome, durationMs, error }) => {
      requests(door, operation, outcome);
      if (outcome === 'first' || outcome === 'replayed') keys(operation, outcome === 'first' ? 'miss' : 'hit');
      durations(durationMs / 1_000, door, operation);
      if (error === undefined || performance.now() - loggedAt < quietMs) return;
      loggedAt = performance.now();
      const { code, message, stack } = error as { code?: unknown; message?: unknown; stack?: unknown };
      log(JSON.stringify({ level: 'error', door, operation, outcome, code, message, stack }));
    };
}
