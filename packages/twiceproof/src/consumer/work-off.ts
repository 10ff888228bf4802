import { setTimeout as delay } from 'node:timers/promises';
import { TwiceproofError } from '../errors.ts';
import type { HeldKind } from '../inbox/held.ts';
import type { Delivery, Lane } from '../transport.ts';
import type { Applied, Part } from './apply.ts';
import { decide, HandlerError, isOfMessage } from './decide.ts';
import type { Slots } from './slots.ts';

/** What came of one batch, after its commits. */
export interface ConsumerPass {
  /** A handler of sets may get what several lanes have. */
  lanes: Lane[];
  /** How many messages were dealt with: all, unless the lane was taken away, or we were stopped, while some had to wait. */
  received: number;
  first: number;
  duplicates: number;
  /** Newly held. */
  held: Partial<Record<HeldKind, number>>;
  ranLate: number;
  /** How many transactions were tried: more than one if something failed. */
  transactions: number;
  tookMs: number;
  /** From the time that each new message bears (nearly its commit, at its sender) to the commit here. */
  agesMs: number[];
}

export interface WorkOffOptions {
  apply(parts: readonly Part[]): Promise<Applied>;
  retryForMs: number;
  onFailure: 'park' | 'dead-letter';
  onTrouble?: ((error: unknown) => void) | undefined;
  /** Given back while it waits, so that a lane that cannot go on keeps no other from going on. */
  slots: Slots;
}

const firstPauseMs = 50;
const longestPauseMs = 5_000;

/** Lanes whose batches are worked off one by one, after all of them were tried in one transaction. */
export interface Suspects {
  parts: readonly Part[];
  /** Of that transaction. */
  failure: unknown;
  /** When it began. */
  since: number;
}

export interface WorkedOff {
  pass: ConsumerPass;
  /** Otherwise the lane was taken away, or we are to stop, while something had to wait. */
  isDone: boolean;
}

/** All of it in one transaction, as nearly always. If that fails nothing has happened. It throws where a lane has to begin anew. */
export async function workOffTogether(
  apply: WorkOffOptions['apply'],
  parts: readonly Part[],
): Promise<{ pass: ConsumerPass } | Suspects> {
  const since = performance.now();
  const pass = { ...emptyPass(parts.map(({ lane }) => lane)), transactions: 1 };
  const received = parts.reduce((sum, { deliveries }) => sum + deliveries.length, 0);
  try {
    count(await apply(parts), received, pass);
  } catch (failure) {
    if (isPositionLost(failure)) throw failure;
    return { parts, failure, since };
  }
  return { pass: { ...pass, tookMs: performance.now() - since } };
}

/**
 * Each of these lanes by itself, in a slot of its own, so that halving and waiting concern that lane alone. Throws what one
 * of them threw, when all have ended.
 */
export async function workOffEach(
  how: WorkOffOptions,
  { parts, failure, since }: Suspects,
  stopping: AbortSignal,
  done: (part: Part, worked: WorkedOff) => Promise<void>,
): Promise<void> {
  let failedAgain = parts.length === 1;
  const ended = await Promise.allSettled(
    parts.map(async (part, n) => {
      await how.slots.take();
      try {
        // What was tried counts for the first of them. Of a single one it has failed; of several nobody knows which.
        const tried = { since, transactions: n === 0 ? 1 : 0, ...(parts.length === 1 && { failure }) };
        const worked = await workOff(how, part, stopping, tried);
        failedAgain ||= worked.pass.transactions > tried.transactions + 1 || !worked.isDone;
        await done(part, worked);
      } finally {
        how.slots.giveBack();
      }
    }),
  );
  // Otherwise nobody would hear of a handler that fails whenever it gets several lanes at once.
  if (!failedAgain && !parts.some(({ signal }) => signal.aborted)) how.onTrouble?.(causeOf(failure));
  const rejected = ended.find((each) => each.status === 'rejected');
  if (rejected) throw rejected.reason;
}

/**
 * Works off what one lane has, in one transaction if nothing fails. Otherwise in parts, in their order and each committed
 * before the next: see `decide`. It throws only where its lane has to begin anew. Until it is done, or the lane is not ours
 * any more; as long as the database is away, it waits here. When we are to stop, what is under way is finished, and nothing
 * is tried again. After each failure it gives its slot to whoever waits for one.
 */
export async function workOff(
  { apply, retryForMs, onFailure, onTrouble, slots }: WorkOffOptions,
  { lane, deliveries, signal }: Part,
  stopping: AbortSignal,
  tried: { since: number; transactions: number; failure?: unknown } = { since: performance.now(), transactions: 0 },
): Promise<WorkedOff> {
  const pass = { ...emptyPass([lane]), transactions: tried.transactions };
  const parts = deliveries.length > 0 ? [deliveries] : [];
  let failures = 0;
  /** Since when its own failures have followed each other: what is away says nothing of a message. */
  let failingSince: number | undefined;
  let failed: Part['failed'];

  async function tryOnce(part: readonly Delivery[]): Promise<{ error: unknown } | undefined> {
    try {
      pass.transactions += 1;
      count(await apply([{ lane, deliveries: part, signal, failed }]), part.length, pass);
      return undefined;
    } catch (error) {
      if (isPositionLost(error)) throw error;
      return { error };
    }
  }

  let known = 'failure' in tried ? { error: tried.failure } : undefined;
  for (let part = parts[0]; part !== undefined; part = parts[0]) {
    const failure = known ?? (await tryOnce(part));
    known = undefined;
    if (!failure) {
      parts.shift();
      failures = 0;
      failingSince = failed = undefined;
      continue;
    }
    const { error } = failure;
    failures += 1;
    const now = performance.now();
    failingSince = isOfMessage(error) ? (failingSince ?? now) : undefined;
    const failingMs = now - (failingSince ?? now);
    const next = signal.aborted ? 'again' : decide(error, { messages: part.length, failingMs, retryForMs });
    const cause = causeOf(error);
    slots.giveBack();
    if (next === 'halve') {
      const half = Math.ceil(part.length / 2);
      parts.splice(0, 1, part.slice(0, half), part.slice(half));
      failures = 0;
      failingSince = undefined;
    } else if (next === 'hold' && !failed) {
      const reason = cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause);
      onTrouble?.(new TwiceproofError('TP_HANDLER', reason, { cause }));
      failed = { kind: onFailure === 'park' ? 'parked' : 'dead', reason };
    } else {
      if (!signal.aborted) onTrouble?.(cause);
      await pause(failures, AbortSignal.any([signal, stopping]));
    }
    await slots.take();
    if (next === 'again' && (signal.aborted || stopping.aborted)) break;
  }
  return { pass: { ...pass, tookMs: performance.now() - tried.since }, isDone: parts.length === 0 };
}

function causeOf(error: unknown): unknown {
  return error instanceof HandlerError ? error.cause : error;
}

function isPositionLost(error: unknown): boolean {
  return (error as { code?: unknown } | undefined)?.code === 'TP_POSITION_LOST';
}

export async function pause(attempt: number, signal: AbortSignal): Promise<void> {
  const ms = Math.min(firstPauseMs * 2 ** (attempt - 1), longestPauseMs) * (0.5 + Math.random());
  await delay(ms, undefined, { signal }).catch(() => {});
}

function emptyPass(lanes: readonly Lane[]): ConsumerPass {
  const counts = { received: 0, first: 0, duplicates: 0, ranLate: 0, transactions: 0, tookMs: 0 };
  return { lanes: lanes.map(({ topic, partition }) => ({ topic, partition })), ...counts, held: {}, agesMs: [] };
}

function count({ first, duplicates, held, ranLate }: Applied, received: number, pass: ConsumerPass): void {
  const now = Date.now();
  pass.received += received;
  pass.first += first.length;
  pass.duplicates += duplicates;
  pass.ranLate += ranLate;
  for (const { kind } of held) pass.held[kind] = (pass.held[kind] ?? 0) + 1;
  for (const { createdAt } of first) if (createdAt) pass.agesMs.push(now - createdAt.getTime());
}
