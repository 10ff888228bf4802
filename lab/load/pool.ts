/** The lines to one process, and the requests that wait for one. First come, first served. */
import type { Door, Line, OnDone } from './line.ts';
import type { Send } from './plan.ts';
import { createQueue, type Queue } from './queue.ts';

export interface Pool extends Pick<Door, 'open' | 'close'> {
  waiting: Queue;
  inFlight: number;
  /** A free line that is prepared for the next waiting request, if there are both. */
  take(): Line | undefined;
  /** Gives up what was due before this; what was never sent goes to `onExpired`. */
  expire(dueBeforeMs: number, onExpired: (send: Send) => void): void;
}

export function createPool(size: number, doorTo: (onDone: OnDone) => Door, onDone: OnDone): Pool {
  const { lines, open, admits, close } = doorTo((line, send, reason) => {
    free[(firstFree + size - pool.inFlight) % size] = line;
    pool.inFlight--;
    onDone(line, send, reason);
  });
  // In a ring, the longest unused first: each is used often enough not to be closed as idle.
  const free: Line[] = [...lines];
  let firstFree = 0;

  const pool: Pool = {
    waiting: createQueue(),
    inFlight: 0,
    open,
    take() {
      if (pool.inFlight === size || !pool.waiting.first || !admits()) return undefined;
      const line = free[firstFree]!;
      firstFree = (firstFree + 1) % size;
      pool.inFlight++;
      line.prepare(pool.waiting.shift()!);
      return line;
    },
    expire(dueBeforeMs, onExpired) {
      for (const line of lines) {
        if (line.current && line.current.dueMs < dueBeforeMs) line.abandon('timeout');
      }
      const { waiting } = pool;
      while (waiting.first && waiting.first.dueMs < dueBeforeMs) onExpired(waiting.shift()!);
    },
    close,
  };
  return pool;
}
