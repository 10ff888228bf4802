import { connectQuietly } from '../connection.ts';
import { TwiceproofError } from '../errors.ts';
import { contentHash, createInbox } from '../inbox/accept.ts';
import { createHeld, type HeldRow } from '../inbox/held.ts';
import { onItsOwnConnection } from '../own-connection.ts';
import { point } from '../points.ts';
import { transaction, type Pool } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { fromDelivery, type ReceivedMessage } from '../wire.ts';
import { isElsewhere } from './decide.ts';
import { runHandlerInTime, type Handler } from './handler.ts';

export interface RedriveOptions {
  pool: Pool;
  schema?: string | undefined;
  consumer: string;
  handler: Handler;
  idleTimeoutMs: number;
  handlerTimeoutMs: number;
}

export interface Redrive {
  /**
   * Does what operators asked for (`twiceproof held redrive | release`), until the signal is aborted. Answers how many
   * messages it has settled. One whose handler fails is kept, with its new reason, and the wish is off.
   */
  asked(signal: AbortSignal): Promise<number>;
}

/**
 * Runs the handler for messages that are held. Never by publishing them again: each in one transaction that begins by
 * deleting the held row. Of two that do this one finds the row, and if it dies, the row is there again.
 */
export function createRedrive(options: RedriveOptions): Redrive {
  const { pool, schema, consumer, handler, idleTimeoutMs, handlerTimeoutMs } = options;
  const held = createHeld({ schema });
  const inbox = createInbox({ schema });
  const localSettings = { idle_in_transaction_session_timeout: `${Math.round(idleTimeoutMs)}ms` };

  async function asked(signal: AbortSignal): Promise<number> {
    const rows = await onConnection((tx) => held.asked(tx, consumer));
    const released = new Set<string>();
    let settled = 0;
    let trouble: { error: unknown } | undefined;
    for (const { seq, asked: wish, aggregateId } of rows) {
      if (signal.aborted) break;
      try {
        if (wish === 'redrive' || aggregateId === undefined) {
          if (await attempt((tx) => held.take(tx, seq))) settled += 1;
        } else if (!released.has(aggregateId)) {
          released.add(aggregateId);
          settled += await release(aggregateId, signal);
        }
      } catch (error) {
        // This wish stands; the others are not to wait for it.
        trouble ??= { error };
      }
    }
    if (trouble) throw trouble.error;
    return settled;
  }

  /** In their order, until none is left; those that come meanwhile join behind, and so they go too. */
  async function release(aggregateId: string, signal: AbortSignal): Promise<number> {
    let settled = 0;
    while (!signal.aborted && (await attempt((tx) => held.takeFirstOfKey(tx, consumer, aggregateId)))) settled += 1;
    return settled;
  }

  /** Whether one was settled; not if there was none, nor if it has failed. */
  async function attempt(take: (tx: Tx) => Promise<HeldRow | undefined>): Promise<boolean> {
    let row: HeldRow | undefined;
    try {
      await transaction(
        pool,
        async (tx) => {
          row = await take(tx);
          if (!row) return;
          await point('consumer:redrive-taken');
          await settle(tx, row);
          await point('consumer:redriven');
        },
        { localSettings },
      );
      return row !== undefined;
    } catch (error) {
      // Then the wish stands, and is done when the database is back.
      if (!row || isElsewhere(error)) throw error;
      const kept = row;
      const reason = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
      await onConnection((tx) => held.keep(tx, kept, reason));
      return false;
    }
  }

  async function settle(tx: Tx, row: HeldRow): Promise<void> {
    const message = fromDelivery(row.delivery);
    if ('problem' in message) throw notRedriven(message.problem);
    await requireFirstOfKey(tx, row);
    if (!(await isToRun(tx, row, message))) return;
    await onItsOwnConnection(pool, async () => runHandlerInTime(handler, tx, [message], handlerTimeoutMs));
  }

  /** One behind another would overtake it. */
  async function requireFirstOfKey(tx: Tx, { kind, aggregateId, seq }: HeldRow): Promise<void> {
    if (kind !== 'parked') return;
    const [first] = await held.list(tx, { consumer, aggregateId, kind, limit: 1 });
    if (first && first.seq < seq) throw notRedriven(`${first.seq} of its key waits before it`);
  }

  /** Whether nobody has run it: of what has no inbox row the inbox is asked now. */
  async function isToRun(tx: Tx, { kind }: HeldRow, message: ReceivedMessage): Promise<boolean> {
    const [id, content] = [message.id, contentHash(message)];
    // Their inbox row was written when they were held, and nobody ran them. It may be forgotten by the time they come again.
    if (kind === 'parked' || kind === 'dead' || kind === 'altered') return held.settled(tx, { consumer, id, content });
    const remembered = await inbox.accept(tx, { consumer, id, content });
    const verdict = remembered === 'late' ? await held.settleLate(tx, { consumer, id, content }) : remembered;
    if (verdict === 'first' || verdict === 'duplicate') return verdict === 'first';
    throw notRedriven(verdict === 'future' ? 'its time has not come' : 'its id was processed with other content');
  }

  async function onConnection<T>(work: (tx: Tx) => Promise<T>): Promise<T> {
    const client = await connectQuietly(pool);
    try {
      const result = await work(client);
      client.release();
      return result;
    } catch (error) {
      client.release(true);
      throw error;
    }
  }

  return { asked };
}

function notRedriven(why: string): TwiceproofError {
  return new TwiceproofError('TP_NOT_REDRIVEN', why);
}
