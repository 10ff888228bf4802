/** Turns the plan into requests as their time comes, and adds the attempts that follow an outcome. */
import { targetsOf, type LoadOptions } from './options.ts';
import { isConcurrent, nextAttempt, planFrom, settlingAttempt, type Send } from './plan.ts';
import { createQueue } from './queue.ts';

export interface Traffic {
  /** Hands over what is due by now: `onIntent` before the first attempt of each intent, `onSend` for each attempt. */
  release(nowMs: number, onIntent: (first: Send) => void, onSend: (send: Send) => void): void;
  /** An attempt is over: plans the one that waits for it, if there is one. */
  followUp(send: Send, nowMs: number): void;
  /** Asks once more by then, whatever was planned. No earlier than what it was told before. */
  askAgain(send: Send, dueMs: number): void;
  /** When the next is due; Infinity if there is none. */
  nextDueMs(): number;
  /** No more of the plan, neither intents nor attempts. */
  stop(): void;
}

export function createTraffic(options: LoadOptions): Traffic {
  const plan = planFrom(options);
  const targets = targetsOf(options).length;
  // All follow by the same delay, and those that settle come when these are gone: the first in is the first due.
  const later = createQueue();
  let upcoming = plan.next();
  let stopped = false;
  return {
    release(nowMs, onIntent, onSend) {
      while (upcoming && upcoming.dueMs <= nowMs) {
        onIntent(upcoming);
        onSend(upcoming);
        if (isConcurrent(upcoming)) {
          let more = nextAttempt(upcoming, upcoming.dueMs, targets);
          for (; more; more = nextAttempt(more, more.dueMs, targets)) onSend(more);
        }
        upcoming = plan.next();
      }
      while (later.first && later.first.dueMs <= nowMs) onSend(later.shift()!);
    },
    followUp(send, nowMs) {
      if (stopped || isConcurrent(send)) return;
      const more = nextAttempt(send, nowMs + options.retryDelayMs, targets);
      if (more) later.push(more);
    },
    askAgain: (send, dueMs) => later.push(settlingAttempt(send, dueMs, targets)),
    nextDueMs: () => Math.min(upcoming?.dueMs ?? Infinity, later.first?.dueMs ?? Infinity),
    stop() {
      stopped = true;
      upcoming = undefined;
      later.clear();
    },
  };
}
