/**
 * An open model: requests go out when the plan says, whether or not earlier ones are answered, and
 * latency counts from that time. A closed model, where a client waits for its answer before it sends
 * again, stops asking while a server stalls, and so measures the stall once instead of once for each
 * request that should have been sent.
 */
import { createAnswers, type Answers } from './answers.ts';
import type { Connection, Reason } from './connection.ts';
import { digestText } from './digest.ts';
import { noLedger, type Ledger, type Verdict } from './ledger.ts';
import { createMeter, type Meter, type Second } from './meter.ts';
import { hotSetSize, problemsOf, type LoadOptions } from './options.ts';
import type { Send } from './plan.ts';
import { createPools, type Pool } from './pool.ts';
import { createTraffic, type Traffic } from './traffic.ts';

export interface LoadHooks {
  /** Stops sending, waits for what is in flight, and ends. */
  signal?: AbortSignal;
  /** Every connection is open, and the clock starts. */
  onReady?: () => void;
  onSecond?: (second: Second) => void;
  /** Not closed at the end. Defaults to none. */
  ledger?: Ledger;
}

export interface LoadRun {
  options: LoadOptions;
  startedAt: Date;
  /** Until the last outcome. */
  elapsedMs: number;
  interrupted: boolean;
  counts: Meter['counts'];
  seconds: readonly Second[];
  histograms: ReturnType<Meter['histograms']>;
  answers: Pick<Answers, 'compared' | 'different' | 'samples'>;
  /** Of this process, which may do other things too. */
  cpuUs: number;
}

export async function runLoad(options: LoadOptions, hooks: LoadHooks = {}): Promise<LoadRun> {
  const problems = problemsOf(options);
  if (problems.length > 0) throw new RangeError(problems.join('; '));
  const engine = createEngine(options, hooks);
  const { meter, answers, pools } = engine;
  try {
    await Promise.all(pools.map((pool) => pool.open()));
    hooks.onReady?.();
    const startedAt = new Date();
    const { seed, rate, urls } = options;
    engine.ledger.begin({ startedAt, seed, rate, urls });
    const cpuBefore = process.cpuUsage();
    const elapsedMs = await turnUntilDone(engine, hooks);
    const cpu = process.cpuUsage(cpuBefore);
    return {
      options,
      startedAt,
      elapsedMs,
      interrupted: hooks.signal?.aborted ?? false,
      counts: meter.counts,
      seconds: meter.seconds,
      histograms: meter.histograms(),
      answers: { compared: answers.compared, different: answers.different, samples: answers.samples },
      cpuUs: cpu.user + cpu.system,
    };
  } finally {
    for (const pool of pools) pool.close();
  }
}

interface Engine {
  options: LoadOptions;
  ledger: Ledger;
  meter: Meter;
  answers: Answers;
  traffic: Traffic;
  pools: Pool[];
  startMs: number;
  invocations: number;
  /** Asks for a turn once all sockets that have something are read. */
  wake: () => void;
}

function createEngine(options: LoadOptions, { ledger = noLedger }: LoadHooks): Engine {
  const { principalHeader, seed, bornAtMs, maxResponseBytes, warmupS } = options;
  const onDone = (connection: Connection, send: Send, reason: Reason): void => settle(engine, connection, send, reason);
  const engine: Engine = {
    options,
    ledger,
    meter: createMeter(warmupS * 1_000),
    answers: createAnswers(hotSetSize(options)),
    traffic: createTraffic(options),
    pools: createPools(options, { principalHeader, seed, bornAtMs, maxResponseBytes, onDone }),
    startMs: 0,
    invocations: 0,
    wake: () => {},
  };
  return engine;
}

/** How often timeouts are looked for. */
const sweepMs = 50;

/**
 * A turn comes when the next request is due, and after sockets were read: give up what is too old; what
 * is due begins to wait; what waits meets free connections. Resolves with the milliseconds that it took.
 */
async function turnUntilDone(engine: Engine, { signal, onSecond }: LoadHooks): Promise<number> {
  const { meter, traffic, pools } = engine;
  const ended = Promise.withResolvers<number>();
  let nextSweepMs = sweepMs;
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
  const turn = (): void => {
    immediate = undefined;
    try {
      if (signal?.aborted) stop(engine);
      const nowMs = performance.now() - engine.startMs;
      if (nowMs >= nextSweepMs) {
        nextSweepMs = nowMs + sweepMs;
        giveUpOld(engine, nowMs);
        while (meter.seconds.length < Math.floor(nowMs / 1_000)) {
          const second = meter.endSecond(waitingIn(pools), inFlightIn(pools));
          onSecond?.(second);
        }
      }
      release(engine, nowMs);
      sendWaiting(engine, nowMs);
      const dueMs = traffic.nextDueMs();
      if (dueMs === Infinity && waitingIn(pools) + inFlightIn(pools) === 0) return ended.resolve(nowMs);
      turnBy(Math.min(dueMs, nextSweepMs), nowMs);
    } catch (error) {
      ended.reject(error);
    }
  };
  engine.wake = () => {
    immediate ??= setImmediate(turn);
  };
  engine.startMs = performance.now();
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

function release({ meter, traffic, pools, options }: Engine, nowMs: number): void {
  const { counts } = meter;
  traffic.release(
    nowMs,
    ({ dueMs }) => {
      counts.intents++;
      meter.late(nowMs - dueMs);
    },
    (due) => {
      counts.due++;
      if (waitingIn(pools) >= options.maxWaiting) counts.dropped++;
      else pools[due.target]!.waiting.push(due);
    },
  );
}

/** Who begins in this turn; here so that a turn needs no array of its own. */
const starting: Connection[] = [];

/** The ledger knows all of them before the first is written, at the price of one write() for a turn. */
function sendWaiting(engine: Engine, nowMs: number): void {
  const { meter, ledger, pools } = engine;
  starting.length = 0;
  for (const pool of pools) {
    for (let connection = pool.take(); connection; connection = pool.take()) {
      const request = connection.current!;
      request.invocation = ++engine.invocations;
      connection.request.fill(request.keyNumber);
      meter.sent(request);
      if (ledger !== noLedger) invoke(ledger, connection, request, nowMs);
      starting.push(connection);
    }
  }
  if (starting.length === 0) return;
  ledger.flush();
  for (const connection of starting) connection.start(nowMs);
}

function invoke(ledger: Ledger, { request }: Connection, { invocation, attempt, target }: Send, atMs: number): void {
  ledger.invoke({
    number: invocation,
    atMs,
    door: 'http',
    operation: 'create',
    key: request.key(),
    attempt,
    url: target,
    accountId: request.accountId,
    amountCents: request.amountCents,
  });
}

/** An invocation is over. */
function settle(engine: Engine, connection: Connection, request: Send, reason: Reason): void {
  const { meter, ledger, answers, traffic } = engine;
  const { answer } = connection;
  const nowMs = performance.now() - engine.startMs;
  const verdict = verdictOf(reason, answer.status);
  const status = reason === 'answered' ? answer.status : 0;
  meter.over(request, verdict, status, reason, nowMs);
  if (ledger !== noLedger) {
    const hash = reason === 'answered' ? digestText(answer.digest) : '';
    ledger.outcome(request.invocation, nowMs, verdict, status, hash, reason);
  }
  if (verdict === 'ok') {
    answers.check(request.keyNumber, answer.digest, () => ({
      key: connection.request.key(),
      answer: answer.sample(1_000),
    }));
  }
  traffic.followUp(request, nowMs);
  engine.wake();
}

/** We do not take a server's word that a 5xx changed nothing. */
function verdictOf(reason: Reason, status: number): Verdict {
  if (reason === 'refused') return 'fail';
  if (reason !== 'answered') return 'unknown';
  if (status >= 200 && status < 300) return 'ok';
  return status >= 400 && status < 500 ? 'fail' : 'unknown';
}

function giveUpOld({ meter, traffic, pools, options }: Engine, nowMs: number): void {
  for (const pool of pools) {
    pool.expire(nowMs - options.timeoutMs, (never) => {
      meter.expired(never, nowMs);
      traffic.followUp(never, nowMs);
    });
  }
}

function stop({ traffic, pools }: Engine): void {
  traffic.stop();
  for (const pool of pools) pool.waiting.clear();
}

function waitingIn(pools: readonly Pool[]): number {
  let sum = 0;
  for (const pool of pools) sum += pool.waiting.size;
  return sum;
}

function inFlightIn(pools: readonly Pool[]): number {
  let sum = 0;
  for (const pool of pools) sum += pool.inFlight;
  return sum;
}
