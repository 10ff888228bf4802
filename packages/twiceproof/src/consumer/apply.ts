import { contentHash, createInbox, type Verdict } from '../inbox/accept.ts';
import { createHeld, recordHash, type HeldKind, type HeldRow, type ToHold } from '../inbox/held.ts';
import { usualClockMarginMs } from '../inbox/horizon.ts';
import { writePositions, type KnownLane } from '../inbox/position.ts';
import { isServerError } from '../connection.ts';
import { TwiceproofError } from '../errors.ts';
import { createNamedStatements } from '../named-statements.ts';
import { onItsOwnConnection } from '../own-connection.ts';
import { point } from '../points.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { Delivery, Position } from '../transport.ts';
import type { Tx } from '../tx.ts';
import { timeOfUuidv7 } from '../uuid.ts';
import { fromDelivery, type ReceivedMessage } from '../wire.ts';
import { HandlerError, isElsewhere } from './decide.ts';
import { inTime, runHandlerInTime, watchTx, type Handler } from './handler.ts';

export interface ApplyOptions {
  pool: Pool;
  schema?: string | undefined;
  consumer: string;
  handler: Handler;
  runLate: boolean;
  idleTimeoutMs: number;
  handlerTimeoutMs: number;
  /** What stands in the database of each lane, as far as we know: read when it was assigned, then written by us. */
  positions: Map<string, bigint>;
  onHeld?: ((tx: Tx, held: readonly HeldRow[]) => Promise<void>) | undefined;
}

/** What came of a part of a batch, once it is committed. */
export interface Applied {
  first: ReceivedMessage[];
  duplicates: number;
  /** Newly held. */
  held: HeldRow[];
  /** Run though nobody can say whether they have run before (`runLate`). */
  ranLate: number;
}

export interface Part {
  lane: KnownLane;
  deliveries: readonly Delivery[];
  /** Aborted when the lane is not ours any more: then nothing is committed. */
  signal: AbortSignal;
  /** The one message of this part has failed for good: it is held, and its handler does not run. */
  failed?: { kind: 'parked' | 'dead'; reason: string } | undefined;
}

interface Readable {
  lane: KnownLane;
  delivery: Delivery;
  message: ReceivedMessage;
  content: bigint;
}

interface Unreadable {
  lane: KnownLane;
  delivery: Delivery;
  problem: string;
}

/**
 * A part of a lane, or of several, in one transaction: inbox rows, effects of the messages that were new, what is held, the
 * positions. All of it is there after COMMIT or none of it, so it may be done again at any time.
 */
export function createApply(options: ApplyOptions): (parts: readonly Part[]) => Promise<Applied> {
  const { pool, schema, consumer, handler, runLate, handlerTimeoutMs, positions } = options;
  const inbox = createInbox({ schema });
  const heldRows = createHeld({ schema });
  const statements = createNamedStatements();
  // For a handler whose time is over in the midst of a statement; its own deadline is to speak first.
  const statementWithinMs = 2 * handlerTimeoutMs;
  const localSettings = { idle_in_transaction_session_timeout: `${Math.round(options.idleTimeoutMs)}ms` };

  return async function apply(parts: readonly Part[]): Promise<Applied> {
    const failed = parts.find((part) => part.failed)?.failed;
    const ends = parts.flatMap(endOf);
    let step = 'ours' as 'ours' | 'handler' | 'onHeld' | 'commit';
    let isOfDatabase = (_error: unknown): boolean => false;
    const work = async (tx: Tx): Promise<Applied> => {
      step = 'ours';
      const watched = watchTx(tx);
      isOfDatabase = watched.isOurs;
      const hasBlockedKeys = await advance(tx, ends);
      const { readable, unreadable } = read(parts);
      const arrived = readable.map(({ message: { id }, content }) => ({ id, content }));
      const verdicts = await inbox.acceptAll(tx, consumer, arrived);
      await point('consumer:accepted');
      const of = (...wanted: Verdict[]): Readable[] => readable.filter((_, n) => wanted.includes(verdicts[n]!));
      const ours = runLate ? of('first', 'late') : of('first');
      const keys = new Set(ours.map(({ message }) => message.aggregateId));
      // Somebody else has had some of these, perhaps a moment ago: then he may have parked them later than that look.
      const mayBeBlocked = !failed && (hasBlockedKeys || verdicts.some((verdict) => verdict !== 'first'));
      const blocked = mayBeBlocked ? await heldRows.blockedKeys(tx, consumer, [...keys]) : new Set();
      const isBlocked = ({ message }: Readable): boolean => blocked.has(message.aggregateId);
      const run = failed ? [] : ours.filter((each) => !isBlocked(each));

      requireRoom(of('future'));
      step = 'handler';
      const messages = run.map(({ message }) => message);
      await Promise.all([
        onItsOwnConnection(pool, async () => runHandlerInTime(handler, watched.tx, messages, handlerTimeoutMs)),
        point('consumer:handling'),
      ]);
      await point('consumer:handled');
      step = 'ours';

      const held = await heldRows.hold(tx, consumer, [
        ...unreadable.map(unreadableToHold),
        ...toHold('altered', of('altered'), 'its id was processed before, with other content'),
        ...toHold('future', of('future'), 'its id is of a time to come: a wrong clock'),
        ...toHold('late', runLate ? [] : of('late'), 'older than what the inbox remembers'),
        ...toHold('parked', ours.filter(isBlocked), 'behind one of its key'),
        ...(failed ? toHold(failed.kind, ours, failed.reason) : []),
      ]);
      if (held.length > 0) {
        step = 'onHeld';
        await inTime(handlerTimeoutMs, 'onHeld', tellHeld(watched.tx, held));
        step = 'ours';
        await point('consumer:held');
      }
      requireOurs(parts);
      await point('consumer:before-commit');
      step = 'commit';
      const late = new Set(of('late'));
      return {
        first: run.filter((each) => !late.has(each)).map(({ message }) => message),
        duplicates: of('duplicate').length,
        held,
        ranLate: run.filter((each) => late.has(each)).length,
      };
    };
    try {
      const applied = await transaction(pool, work, { localSettings, statements, statementWithinMs });
      for (const end of ends) positions.set(laneName(end), end.next);
      return applied;
    } catch (error) {
      if (step === 'handler' || step === 'onHeld') {
        throw new HandlerError(error, isOfDatabase(error), step === 'onHeld');
      }
      throw blameHandler(error, step === 'commit');
    }
  };

  async function tellHeld(tx: Tx, held: readonly HeldRow[]): Promise<void> {
    await onItsOwnConnection(pool, async () => options.onHeld?.(tx, held));
  }

  /**
   * Answers whether any key may have to wait for a person.
   *
   * What is behind our back: a database that was restored, or a standby that was behind, has another position than the one
   * that we know. Whatever is between the two would be skipped for good, so the lane has to begin anew. A member that had
   * lost the lane and has not heard of it looks the same; then what is between has run, and comes as duplicates.
   */
  async function advance(tx: Tx, ends: readonly End[]): Promise<boolean> {
    if (ends.length === 0) return true;
    const before = await writePositions(tx, consumer, ends, schema);
    for (const [n, end] of ends.entries()) {
      const [known, position] = [positions.get(laneName(end)), before.positions[n]];
      if (known === undefined || (position !== undefined && position >= known)) continue;
      const found = position === undefined ? 'no position' : `position ${position}`;
      const detail = `the database has ${found}, and not ${known}: ${setBack}`;
      throw new TwiceproofError('TP_POSITION_LOST', `${laneName(end)}: ${detail}`);
    }
    return before.hasBlockedKeys;
  }
}

/** Here nothing was deleted, which is what this code says elsewhere. */
const setBack = 'it was restored, or a member that had lost this lane wrote late; what is between comes again';

type End = KnownLane & { next: bigint };

/** Where a lane stands behind this part. What a transport has mixed in from another lane says nothing about this one. */
function endOf({ lane, deliveries }: Part): End[] {
  const isOf = (position: Position): boolean => position.topic === lane.topic && position.partition === lane.partition;
  const last = deliveries.findLast(({ position }) => position && isOf(position))?.position;
  return last ? [{ ...lane, next: last.offset + 1n }] : [];
}

/** Whoever has the lane now does it, and has perhaps done it. */
function requireOurs(parts: readonly Part[]): void {
  const gone = parts.find(({ signal }) => signal.aborted);
  if (gone) throw new TwiceproofError('TP_LANE_REVOKED', laneName(gone.lane));
}

/** Anew in each attempt, so that what a handler changes in its message is not there in the next one. */
function read(parts: readonly Part[]): { readable: Readable[]; unreadable: Unreadable[] } {
  const readable: Readable[] = [];
  const unreadable: Unreadable[] = [];
  for (const { lane, deliveries } of parts) {
    for (const delivery of deliveries) {
      const message = fromDelivery(delivery);
      if ('problem' in message) {
        unreadable.push({ lane, delivery, problem: message.problem });
      } else {
        // What stands in the delivery is what comes again, and what is held.
        message.payload = Buffer.from(message.payload);
        readable.push({ lane, delivery, message, content: contentHash(message) });
      }
    }
  }
  return { readable, unreadable };
}

function unreadableToHold({ lane: { topicId }, delivery, problem }: Unreadable): ToHold {
  return { kind: 'unreadable', delivery, topicId, content: recordHash(delivery), reason: problem };
}

function toHold(kind: HeldKind, those: readonly Readable[], reason: string): ToHold[] {
  return those.map(({ lane: { topicId }, delivery, message: { aggregateId, id }, content }) => {
    return { kind, delivery, topicId, aggregateId, id, content, reason };
  });
}

/** By the name of its topic: which topic that is was settled when the lane was assigned. */
export function laneName({ topic, partition }: Pick<KnownLane, 'topic' | 'partition'>): string {
  return `${topic}/${partition}`;
}

/** An id of now is of no time to come: then it is our partitions that are missing, and messages have to wait for them. */
function requireRoom(future: readonly Readable[]): void {
  const normal = future.find(({ message }) => timeOfUuidv7(message.id)! < Date.now() + usualClockMarginMs);
  if (normal)
    throw new TwiceproofError('TP_INBOX_BEHIND', `there is no partition of the inbox for ${normal.message.id}`);
}

/**
 * Two ways in which what a handler has done is noticed after it: a deferred constraint speaks up at COMMIT; and when it
 * has swallowed the failure of a statement, the server takes no other one (25P02), and makes COMMIT a ROLLBACK.
 */
function blameHandler(error: unknown, atCommit: boolean): unknown {
  const code = String((error as { code?: unknown } | null | undefined)?.code);
  if (code === '25P02') {
    const detail = 'a statement of the handler failed and the failure was not passed on; nothing was written';
    return new HandlerError(new TwiceproofError('TP_COMMIT_WAS_ROLLBACK', detail, { cause: error }), false);
  }
  const isRefused = atCommit && !isElsewhere(error) && (isServerError(error) || code === 'TP_COMMIT_WAS_ROLLBACK');
  return isRefused ? new HandlerError(error, true) : error;
}
