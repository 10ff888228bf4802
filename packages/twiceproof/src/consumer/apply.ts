import { contentHash, createInbox, type Verdict } from '../inbox/accept.ts';
import { createHeld, recordHash, type HeldKind, type HeldRow, type ToHold } from '../inbox/held.ts';
import { writePosition, type KnownLane } from '../inbox/position.ts';
import { TwiceproofError } from '../errors.ts';
import { onItsOwnConnection } from '../own-connection.ts';
import { point } from '../points.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { Delivery, Position } from '../transport.ts';
import type { Tx } from '../tx.ts';
import { fromDelivery, type ReceivedMessage } from '../wire.ts';
import { HandlerError } from './decide.ts';
import { runHandler, type Handler } from './handler.ts';

export interface ApplyOptions {
  pool: Pool;
  schema?: string | undefined;
  consumer: string;
  handler: Handler;
  runLate: boolean;
  idleTimeoutMs: number;
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
  delivery: Delivery;
  message: ReceivedMessage;
  content: bigint;
}

/**
 * One part of a lane in one transaction: inbox rows, effects of the messages that were new, what is held, the position.
 * All of it is there after COMMIT or none of it, so it may be done again at any time.
 */
export function createApply(options: ApplyOptions): (part: Part) => Promise<Applied> {
  const { pool, schema, consumer, handler, runLate } = options;
  const inbox = createInbox({ schema });
  const heldRows = createHeld({ schema });
  const localSettings = { idle_in_transaction_session_timeout: `${Math.round(options.idleTimeoutMs)}ms` };

  return async function apply({ lane, deliveries, signal, failed }: Part): Promise<Applied> {
    let inHandler = false;
    const work = async (tx: Tx): Promise<Applied> => {
      inHandler = false;
      const { readable, unreadable } = read(deliveries);
      const arrived = readable.map(({ message: { id }, content }) => ({ id, content }));
      const verdicts = await inbox.acceptAll(tx, consumer, arrived);
      await point('consumer:accepted');
      const of = (...wanted: Verdict[]): Readable[] => readable.filter((_, n) => wanted.includes(verdicts[n]!));
      const ours = runLate ? of('first', 'late') : of('first');
      const keys = new Set(ours.map(({ message }) => message.aggregateId));
      const blocked = failed ? new Set() : await heldRows.blockedKeys(tx, consumer, [...keys]);
      const isBlocked = ({ message }: Readable): boolean => blocked.has(message.aggregateId);
      const run = failed ? [] : ours.filter((each) => !isBlocked(each));

      inHandler = true;
      const messages = run.map(({ message }) => message);
      await onItsOwnConnection(pool, async () => runHandler(handler, tx, messages));
      await point('consumer:handled');
      inHandler = false;

      const held = await heldRows.hold(tx, consumer, [
        ...unreadable.map(({ delivery, problem }): ToHold => {
          const content = recordHash(delivery);
          return { kind: 'unreadable', delivery, topicId: lane.topicId, content, reason: problem };
        }),
        ...toHold('altered', of('altered'), 'its id was processed before, with other content'),
        ...toHold('future', of('future'), 'its id is of a time to come: a wrong clock'),
        ...toHold('late', runLate ? [] : of('late'), 'older than what the inbox remembers'),
        ...toHold('parked', ours.filter(isBlocked), 'behind one of its key'),
        ...(failed ? toHold(failed.kind, ours, failed.reason) : []),
      ]);
      if (held.length > 0) {
        await options.onHeld?.(tx, held);
        await point('consumer:held');
      }
      const last = deliveries.findLast(({ position }) => position && isOf(lane, position))?.position;
      if (last) await writePosition(tx, consumer, { ...lane, next: last.offset + 1n }, schema);
      // Whoever has the lane now does it, and has perhaps done it.
      if (signal.aborted) throw new TwiceproofError('TP_LANE_REVOKED', `${lane.topic}/${lane.partition}`);
      await point('consumer:before-commit');
      const late = new Set(of('late'));
      return {
        first: run.filter((each) => !late.has(each)).map(({ message }) => message),
        duplicates: of('duplicate').length,
        held,
        ranLate: run.filter((each) => late.has(each)).length,
      };
    };
    try {
      return await transaction(pool, work, { localSettings });
    } catch (error) {
      throw inHandler ? new HandlerError(error) : blameHandler(error);
    }

    function toHold(kind: HeldKind, those: readonly Readable[], reason: string): ToHold[] {
      return those.map(({ delivery, message: { aggregateId, id }, content }) => {
        return { kind, delivery, topicId: lane.topicId, aggregateId, id, content, reason };
      });
    }
  };
}

/** What a transport has mixed in from another lane says nothing about this one. */
function isOf({ topic, partition }: KnownLane, position: Position): boolean {
  return position.topic === topic && position.partition === partition;
}

/** Anew in each attempt, so that what a handler changes in its message is not there in the next one. */
function read(deliveries: readonly Delivery[]): {
  readable: Readable[];
  unreadable: { delivery: Delivery; problem: string }[];
} {
  const readable: Readable[] = [];
  const unreadable: { delivery: Delivery; problem: string }[] = [];
  for (const delivery of deliveries) {
    const message = fromDelivery(delivery);
    if ('problem' in message) unreadable.push({ delivery, problem: message.problem });
    else readable.push({ delivery, message, content: contentHash(message) });
  }
  return { readable, unreadable };
}

/**
 * Two ways in which what a handler has done is noticed after it: a deferred constraint speaks up at COMMIT; and when it
 * has swallowed the failure of a statement, the server takes no other one (25P02), and makes COMMIT a ROLLBACK.
 */
function blameHandler(error: unknown): unknown {
  const code = String((error as { code?: unknown } | null)?.code);
  if (code === '25P02') {
    const detail = 'a statement of the handler failed and the failure was not passed on; nothing was written';
    return new HandlerError(new TwiceproofError('TP_COMMIT_WAS_ROLLBACK', detail, { cause: error }));
  }
  return code === 'TP_COMMIT_WAS_ROLLBACK' || /^(22|23)[0-9A-Z]{3}$/.test(code) ? new HandlerError(error) : error;
}
