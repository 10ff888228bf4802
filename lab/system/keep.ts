/** Keeps one process running: whatever ends it, it is started again, at the same address, and that is counted. */
import { setTimeout as delay } from 'node:timers/promises';

export interface Life {
  pid: number;
  ended: Promise<unknown>;
}

export interface Kept {
  readonly name: string;
  readonly kind: string;
  /** Of the process that runs now, or ran last. */
  readonly pid: number;
  readonly state: 'starting' | 'running' | 'stopped';
  /** How often it was started again. */
  readonly restarts: number;
  /** Why the last start was in vain, if it was. */
  readonly trouble: string | undefined;
  /** No more starts; answers when none is under way. What runs goes on. */
  leaveAlone(): Promise<void>;
}

export interface KeepOptions {
  name: string;
  /** What it is, such as `orders`, for whoever counts by that. */
  kind: string;
  /** Answers when it can serve. One that could not be started must be gone when this rejects. */
  start(): Promise<Life>;
}

const shortestPauseMs = 100;
const longestPauseMs = 2_000;
/** Whoever has lived for so long does not die of its start, and is not made to wait for the next one. */
const settledMs = 5_000;

/** The first start is under way when this returns. */
export function keep({ name, kind, start }: KeepOptions): Kept {
  const leaving = new AbortController();
  const { signal } = leaving;
  let state: Kept['state'] = 'starting';
  let pid = 0;
  let restarts = 0;
  let trouble: string | undefined;

  async function live(): Promise<void> {
    try {
      const life = await start();
      pid = life.pid;
      state = 'running';
      trouble = undefined;
      await Promise.race([life.ended, aborted(signal)]);
    } catch (error) {
      trouble = error instanceof Error ? error.message : String(error);
    }
  }

  async function loop(): Promise<void> {
    let pauseMs = shortestPauseMs;
    while (!signal.aborted) {
      const began = performance.now();
      await live();
      if (signal.aborted) break;
      state = 'starting';
      restarts += 1;
      if (performance.now() - began > settledMs) pauseMs = shortestPauseMs;
      await delay(pauseMs, undefined, { signal }).catch(() => {});
      pauseMs = Math.min(2 * pauseMs, longestPauseMs);
    }
    state = 'stopped';
  }

  const loops = loop();
  return {
    name,
    kind,
    get pid() {
      return pid;
    },
    get state() {
      return state;
    },
    get restarts() {
      return restarts;
    },
    get trouble() {
      return trouble;
    },
    leaveAlone: async () => {
      leaving.abort();
      await loops;
    },
  };
}

async function aborted(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (signal.aborted) resolve();
  signal.addEventListener('abort', () => resolve(), { once: true });
  return promise;
}
