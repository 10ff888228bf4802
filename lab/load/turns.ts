/**
 * A turn comes when the next request is due, and after sockets were read: give up what is too old; what
 * is due begins to wait; what waits meets free connections.
 */
import {
  beginToSettle,
  giveUp,
  giveUpAll,
  inFlightIn,
  release,
  sendWaiting,
  stop,
  waitingIn,
  type Engine,
} from './engine.ts';
import type { Second } from './meter.ts';

export interface TurnHooks {
  /** Ends the schedule: nothing more of it is sent. */
  signal?: AbortSignal;
  onSecond?: (second: Second) => void;
}

/** How often timeouts are looked for. */
const sweepMs = 50;

/** Resolves with the milliseconds that it took. */
export async function turnUntilDone(engine: Engine, { signal, onSecond }: TurnHooks): Promise<number> {
  const { meter, traffic, pools, options } = engine;
  const ended = Promise.withResolvers<number>();
  let nextSweepMs = sweepMs;
  let settleUntilMs = Infinity;
  let timer: NodeJS.Timeout | undefined;
  let timerMs = Infinity;
  let immediate: NodeJS.Immediate | undefined;

  // A timer that is early enough stays: at thousands of turns a second, setting one each time would show.
  const turnBy = (dueMs: number, nowMs: number): void => {
    if (timerMs <= Math.max(dueMs, nowMs + 1)) return;
    clearTimeout(timer);
    timerMs = dueMs;
    timer = setTimeout(onTimer, Math.max(1, dueMs - nowMs));
  };
  const onTimer = (): void => {
    timerMs = Infinity;
    turn();
  };
  const sweep = (nowMs: number): void => {
    nextSweepMs = nowMs + sweepMs;
    giveUp(engine, nowMs - options.timeoutMs, nowMs);
    while (meter.seconds.length < Math.floor(nowMs / 1_000)) {
      const second = meter.endSecond(waitingIn(pools), inFlightIn(pools));
      onSecond?.(second);
    }
    if (nowMs >= settleUntilMs) giveUpAll(engine, nowMs);
  };
  const turn = (): void => {
    immediate = undefined;
    try {
      if (signal?.aborted && engine.phase === 'schedule') stop(engine);
      const nowMs = performance.now() - engine.startMs;
      if (nowMs >= nextSweepMs) sweep(nowMs);
      release(engine, nowMs);
      sendWaiting(engine, nowMs);
      const isIdle = traffic.nextDueMs() === Infinity && waitingIn(pools) + inFlightIn(pools) === 0;
      if (isIdle && !beginToSettle(engine, nowMs)) return ended.resolve(nowMs);
      if (isIdle) settleUntilMs = nowMs + options.settleS * 1_000;
      turnBy(Math.min(traffic.nextDueMs(), nextSweepMs), nowMs);
    } catch (error) {
      ended.reject(error);
    }
  };
  engine.wake = () => {
    immediate ??= setImmediate(turn);
  };
  signal?.addEventListener('abort', turn);
  turn();
  try {
    return await ended.promise;
  } finally {
    signal?.removeEventListener('abort', turn);
    clearTimeout(timer);
    clearImmediate(immediate);
    engine.wake = () => {};
  }
}
