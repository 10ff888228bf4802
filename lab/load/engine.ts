/** What is done with requests: they begin to wait, are sent, are over; and what is written down of each. */
import { createMetrics, type Metrics } from '@twiceproof/program/metrics';
import { createAnswers, type Answers } from './answers.ts';
import { digestText } from './digest.ts';
import type { Order } from './changes.ts';
import { createGrpcDoor } from './grpc-door.ts';
import { createHttpDoor } from './http-door.ts';
import { noLedger, type Ledger } from './ledger.ts';
import type { DoorKind, Line, Reason } from './line.ts';
import { createMeter, type Meter } from './meter.ts';
import { hotSetSize, targetsOf, type LoadOptions } from './options.ts';
import type { Send } from './plan.ts';
import { createPool, type Pool } from './pool.ts';
import { createTraffic, type Traffic } from './traffic.ts';
import { createUnsettled, type Unsettled } from './unsettled.ts';
import { isForGood, verdictOf, type Verdict } from './verdict.ts';
import { watchRun, type Watch } from './watch.ts';

export interface Engine {
  options: LoadOptions;
  ledger: Ledger;
  meter: Meter;
  watch: Watch;
  answers: Answers;
  unsettled: Unsettled;
  traffic: Traffic;
  /** One for each target. */
  pools: Pool[];
  /** schedule -> [stopped] -> [settling -> [over]]: told to stop; and the time to settle is over. */
  phase: 'schedule' | 'stopped' | 'settling' | 'over';
  /** Changes that wait for the id of their order. */
  held: number;
  startMs: number;
  invocations: number;
  /** Asks for a turn once all sockets that have something are read. */
  wake: () => void;
}

export function createEngine(options: LoadOptions, ledger = noLedger, metrics: Metrics = createMetrics()): Engine {
  const answers = createAnswers(hotSetSize(options));
  const unsettled = createUnsettled(answers);
  const pools = createPools(options, (line, send, reason) => conclude(engine, line, send, reason));
  const engine: Engine = {
    options,
    ledger,
    meter: createMeter(options.warmupS * 1_000),
    watch: watchRun(metrics, {
      waiting: () => waitingIn(pools),
      inFlight: () => inFlightIn(pools),
      unsettled: unsettled.size,
    }),
    answers,
    unsettled,
    traffic: createTraffic(options),
    pools,
    phase: 'schedule',
    held: 0,
    startMs: 0,
    invocations: 0,
    wake: () => {},
  };
  return engine;
}

/** The lines are divided among the targets. */
function createPools(options: LoadOptions, onDone: Parameters<typeof createPool>[2]): Pool[] {
  const { urls, grpc, clients } = options;
  const targets = targetsOf(options).length;
  const sizeOf = (index: number): number => Math.floor(clients / targets) + (index < clients % targets ? 1 : 0);
  return [
    ...urls.map((url, index) => {
      const size = sizeOf(index);
      return createPool(size, (done) => createHttpDoor(url, size, options, done), onDone);
    }),
    ...grpc.map((address, index) => {
      const size = sizeOf(urls.length + index);
      return createPool(size, (done) => createGrpcDoor(address, size, options, done), onDone);
    }),
  ];
}

/** What is due begins to wait. */
export function release(engine: Engine, nowMs: number): void {
  const { meter, traffic } = engine;
  traffic.release(
    nowMs,
    ({ dueMs }) => {
      meter.counts.intents++;
      meter.late(nowMs - dueMs);
    },
    (due) => beginToWait(engine, due),
  );
}

function beginToWait(engine: Engine, due: Send): void {
  const { watch, pools, options } = engine;
  const { counts } = engine.meter;
  // What is to settle has a limit of its own.
  if (due.kind !== 'settle' && waitingIn(pools) + engine.held >= options.maxWaiting) {
    counts.due++;
    counts.dropped++;
    watch.unsent('dropped');
  } else if (due.operation === 'set-status' && due.order!.id === undefined) {
    due.order!.held.push(due);
    engine.held++;
  } else {
    counts.due++;
    pools[due.target]!.waiting.push(due);
  }
}

/** The answer to its create has named the order: what had to wait for that could not have been sent before. */
function learnId(engine: Engine, order: Order, id: string, nowMs: number): void {
  order.id = id;
  if (engine.phase !== 'schedule') return;
  for (const change of order.held.splice(0)) {
    engine.held--;
    change.dueMs = nowMs;
    beginToWait(engine, change);
  }
}

/** Who begins in this turn; here so that a turn needs no array of its own. */
const starting: Line[] = [];

/** The ledger knows all of them before the first is written, at the price of one write() for a turn. */
export function sendWaiting(engine: Engine, nowMs: number): void {
  const { meter, watch, ledger, pools } = engine;
  starting.length = 0;
  for (const pool of pools) {
    for (let line = pool.take(); line; line = pool.take()) {
      const send = line.current!;
      send.invocation = ++engine.invocations;
      meter.sent(send);
      watch.sent();
      if (ledger !== noLedger) invoke(ledger, line, send, nowMs);
      starting.push(line);
    }
  }
  if (starting.length === 0) return;
  ledger.flush();
  for (const line of starting) line.start(nowMs);
}

function invoke(ledger: Ledger, { door, asked }: Line, send: Send, atMs: number): void {
  const { invocation: number, operation, attempt, target, order } = send;
  const isCreate = operation === 'create';
  ledger.invoke({
    number,
    atMs,
    door,
    operation,
    key: asked.key(),
    attempt,
    target,
    orderId: isCreate ? undefined : order!.id,
    accountId: isCreate ? asked.accountId : undefined,
    amountCents: isCreate ? asked.amountCents : undefined,
    status: isCreate ? undefined : asked.status,
  });
}

/** An invocation is over. */
function conclude(engine: Engine, line: Line, send: Send, reason: Reason): void {
  const { meter, watch, answers, unsettled, traffic } = engine;
  const { door, answer, asked } = line;
  const nowMs = performance.now() - engine.startMs;
  const verdict = verdictOf(door, reason, answer.status);
  meter.over(send, door, verdict, answer.status, reason, nowMs);
  watch.over(send, door, verdict, reason, nowMs);
  keep(engine, line, send, reason, verdict, nowMs);
  if (verdict === 'ok') {
    answers.check(send.keyNumber, door, answer.digest, () => ({ key: asked.key(), answer: answer.sample(1_000) }));
  }
  unsettled.note(send, knownAfter(door, verdict, reason, answer.status));
  if (send.kind === 'settle') settleAgain(engine, send, nowMs);
  else traffic.followUp(send, nowMs);
  engine.wake();
}

/** Of its key. */
function knownAfter(door: DoorKind, verdict: Verdict, reason: Reason, status: number) {
  if (verdict !== 'fail') return verdict === 'ok' ? 'definite' : 'unknown';
  return reason === 'answered' && isForGood(door, status) ? 'definite' : 'nothing';
}

/** The outcome goes to the ledger, and the id of an order to those that will change it; nobody else asks for it. */
function keep(engine: Engine, line: Line, send: Send, reason: Reason, verdict: Verdict, atMs: number): void {
  const { ledger } = engine;
  const { answer } = line;
  const { operation, order, invocation: number } = send;
  const isCreate = operation === 'create';
  const isWanted = ledger !== noLedger || (isCreate && order !== undefined);
  if (!isWanted) return;
  const orderId = verdict === 'ok' ? answer.orderId() : undefined;
  if (isCreate && order && orderId !== undefined && order.id === undefined) learnId(engine, order, orderId, atMs);
  if (ledger === noLedger) return;
  const isAnswered = reason === 'answered';
  ledger.outcome({
    number,
    atMs,
    verdict,
    code: isAnswered ? answer.status : undefined,
    hash: isAnswered ? digestText(answer.digest) : undefined,
    orderId,
    version: verdict !== 'ok' ? undefined : isCreate ? 1 : answer.version(),
    status: verdict === 'ok' ? answer.orderStatus() : undefined,
    reason,
  });
}

/** So that a process that has just come back is not asked by all of them all the time. */
const settleGapMs = 200;

/** Once the schedule is over: asks for everything that has no definite outcome; answers whether there is any. */
export function beginToSettle(engine: Engine, nowMs: number): boolean {
  const { options, unsettled, traffic } = engine;
  const isAfterSchedule = engine.phase === 'schedule' || engine.phase === 'stopped';
  if (!isAfterSchedule || options.settleS === 0 || unsettled.size() === 0) return false;
  engine.phase = 'settling';
  for (const send of unsettled.sends()) traffic.askAgain(send, nowMs);
  return true;
}

function settleAgain({ phase, unsettled, traffic }: Engine, send: Send, nowMs: number): void {
  if (phase === 'settling' && unsettled.has(send)) traffic.askAgain(send, nowMs + settleGapMs);
}

/** What was due before is given up, whether it was sent or not. */
export function giveUp(engine: Engine, dueBeforeMs: number, nowMs: number): void {
  const { meter, watch, traffic, pools } = engine;
  for (const pool of pools) {
    pool.expire(dueBeforeMs, (never) => {
      meter.expired(never, nowMs);
      watch.unsent('expired');
      if (never.kind === 'settle') settleAgain(engine, never, nowMs);
      else traffic.followUp(never, nowMs);
    });
  }
}

/** Nothing more of the schedule is sent; what is in flight stays. */
export function stop(engine: Engine): void {
  const { traffic, pools } = engine;
  engine.phase = 'stopped';
  traffic.stop();
  for (const pool of pools) pool.waiting.clear();
}

/** The time to settle is over: nothing more is sent, and what is in flight is given up. */
export function giveUpAll(engine: Engine, nowMs: number): void {
  engine.phase = 'over';
  giveUp(engine, Infinity, nowMs);
  engine.traffic.stop();
}

export function waitingIn(pools: readonly Pool[]): number {
  let sum = 0;
  for (const pool of pools) sum += pool.waiting.size;
  return sum;
}

export function inFlightIn(pools: readonly Pool[]): number {
  let sum = 0;
  for (const pool of pools) sum += pool.inFlight;
  return sum;
}
