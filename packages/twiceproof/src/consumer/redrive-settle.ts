import { contentHash, createInbox, type Verdict } from '../inbox/accept.ts';
import { createHeld, type HeldRow, type ToKeep } from '../inbox/held.ts';
import type { MessageId } from '../message.ts';
import { onItsOwnConnection } from '../own-connection.ts';
import type { Pool } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { fromDelivery, type ReceivedMessage } from '../wire.ts';
import { HandlerError } from './decide.ts';
import { runHandlerInTime, watchTx, type Handler } from './handler.ts';

export interface SettleOptions {
  pool: Pool;
  schema?: string | undefined;
  consumer: string;
  handler: Handler;
  handlerTimeoutMs: number;
}

/** Why one must not be run, and as what it is to be kept. */
export interface Refusal extends Pick<ToKeep, 'as'> {
  why: string;
}

/** Some must not be run, whatever their handler says: why, by their numbers. */
export class Refused extends Error {
  readonly refusals: ReadonlyMap<bigint, Refusal>;

  constructor(refusals: ReadonlyMap<bigint, Refusal>) {
    super('some are not to be redriven');
    this.refusals = refusals;
  }
}

const mayHaveRun = 'the inbox has forgotten whether it has run; it is a late one now';
const isAnother = 'its id was processed, or dropped, with other content; it is an altered one now';

interface Readable {
  row: HeldRow;
  message: ReceivedMessage;
}

function idOf({ message }: Readable): { id: MessageId; content: bigint } {
  return { id: message.id, content: contentHash(message) };
}

/** Runs the handler for held rows that this transaction has taken, in their order. Throws `Refused`, or what it threw. */
export function createSettle(options: SettleOptions): (tx: Tx, rows: readonly HeldRow[]) => Promise<void> {
  const { pool, schema, consumer, handler, handlerTimeoutMs } = options;
  const held = createHeld({ schema });
  const inbox = createInbox({ schema });

  /** Of the keys that are parked, the first one that is left: what is behind it would overtake it. */
  async function firstLeft(tx: Tx, rows: readonly HeldRow[]): Promise<Map<string | undefined, bigint>> {
    const keys = new Set(rows.filter(({ kind }) => kind === 'parked').map(({ aggregateId = '' }) => aggregateId));
    if (keys.size === 0) return new Map();
    const first = await held.firstOfKeys(tx, consumer, [...keys], 1);
    return new Map(first.map(({ aggregateId, seq }) => [aggregateId, seq]));
  }

  /** Whether nobody has run them: of what has no inbox row the inbox is asked now. */
  async function judge(
    tx: Tx,
    those: readonly Readable[],
    refused: Map<bigint, Refusal>,
  ): Promise<Map<Readable, Verdict>> {
    const verdicts = new Map<Readable, Verdict>();
    // Their inbox row was written when they were held, and nobody ran them. It may be forgotten by the time they come again.
    const [known, unknown] = split(those, ({ row: { kind } }) => ['parked', 'dead', 'altered'].includes(kind));
    const areNew = await held.settled(tx, consumer, known.map(idOf));
    known.forEach((each, n) => verdicts.set(each, areNew[n] ? 'first' : 'duplicate'));
    if (unknown.length === 0) return verdicts;
    const remembered = await inbox.acceptAll(tx, consumer, unknown.map(idOf));
    unknown.forEach((each, n) => verdicts.set(each, remembered[n]!));
    const forgotten = unknown.filter((each) => verdicts.get(each) === 'late');
    const [late, unsure] = split(forgotten, ({ row: { kind } }) => kind === 'late');
    // Another copy may have come in its time and have run; the inbox would have known then, and has forgotten. Whoever asked
    // did not ask for a late one, so he is to look and to ask again.
    for (const each of unsure) {
      const { aggregateId } = each.message;
      refused.set(each.row.seq, { why: mayHaveRun, as: { kind: 'late', ...idOf(each), aggregateId } });
    }
    const settled = await held.settleLate(tx, consumer, late.map(idOf));
    late.forEach((each, n) => verdicts.set(each, settled[n]!));
    return verdicts;
  }

  return async function settle(tx: Tx, rows: readonly HeldRow[]): Promise<void> {
    const refused = new Map<bigint, Refusal>();
    const readable: Readable[] = [];
    const left = await firstLeft(tx, rows);
    for (const row of rows) {
      const message = fromDelivery(row.delivery);
      const before = row.kind === 'parked' ? left.get(row.aggregateId) : undefined;
      if ('problem' in message) refused.set(row.seq, { why: message.problem });
      else if (before !== undefined && before < row.seq)
        refused.set(row.seq, { why: `${before} of its key waits before it` });
      else readable.push({ row, message });
    }
    const verdicts = await judge(tx, readable, refused);
    for (const [each, verdict] of verdicts) {
      const { row, message } = each;
      if (verdict === 'future') refused.set(row.seq, { why: 'its time has not come' });
      // Whoever asked did not know; if he asks again, it runs as a message of its own.
      if (verdict === 'altered') {
        refused.set(row.seq, {
          why: isAnother,
          as: { kind: 'altered', ...idOf(each), aggregateId: message.aggregateId },
        });
      }
    }
    if (refused.size > 0) throw new Refused(refused);
    const messages = readable.filter((each) => verdicts.get(each) === 'first').map(({ message }) => message);
    const watched = watchTx(tx);
    try {
      await onItsOwnConnection(pool, async () => runHandlerInTime(handler, watched.tx, messages, handlerTimeoutMs));
    } catch (error) {
      throw new HandlerError(error, watched.isOurs(error));
    }
  };
}

function split<T>(all: readonly T[], isLeft: (each: T) => boolean): [T[], T[]] {
  return [all.filter(isLeft), all.filter((each) => !isLeft(each))];
}
