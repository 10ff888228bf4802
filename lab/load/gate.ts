/**
 * Who may go to a process that nobody listens for. The first to be refused shuts the gate for a moment; then one
 * at a time tries, and each refusal doubles the moment, up to a limit, until one gets through. So a process that
 * is killed costs few requests, and one that is back is found within a quarter of a second.
 */
export interface Gate {
  admits(): boolean;
  opened(): void;
  refused(): void;
}

const firstPauseMs = 10;
const longestPauseMs = 250;

export function createGate(now: () => number = () => performance.now()): Gate {
  let pauseMs = 0;
  let untilMs = 0;
  let isTrying = false;
  return {
    admits() {
      if (pauseMs === 0) return true;
      if (isTrying || now() < untilMs) return false;
      isTrying = true;
      return true;
    },
    opened() {
      pauseMs = 0;
      isTrying = false;
    },
    refused() {
      // Those that were refused together are one refusal.
      if (pauseMs > 0 && !isTrying) return;
      isTrying = false;
      pauseMs = Math.min(longestPauseMs, pauseMs === 0 ? firstPauseMs : 2 * pauseMs);
      untilMs = now() + pauseMs;
    },
  };
}
