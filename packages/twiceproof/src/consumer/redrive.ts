import { connectWithin } from '../answered.ts';
import { createHeld } from '../inbox/held.ts';
import type { Tx } from '../tx.ts';
import { createLine, type Done, type LineOptions } from './redrive-line.ts';

export type RedriveOptions = LineOptions;

export interface Redrive {
  /**
   * Does what operators asked for (`twiceproof held redrive | release`), until nothing is left of it or the signal is
   * aborted. Answers how many messages it has settled. One whose handler fails is kept, with its new reason, and the wish
   * is off.
   */
  asked(signal: AbortSignal): Promise<number>;
}

/** How many messages are run in one transaction, about. */
const atOnce = 100;

/**
 * Runs the handler for messages that are held. Never by publishing them again: some at a time, in a transaction that
 * begins by deleting their held rows. Of two that do this one finds a row, and if it dies, the row is there again.
 */
export function createRedrive(options: RedriveOptions): Redrive {
  const { pool, schema, consumer, handlerTimeoutMs } = options;
  const held = createHeld({ schema });
  const workOff = createLine(options);

  async function asked(signal: AbortSignal): Promise<number> {
    const done: Done = { settled: 0 };
    for (let after = 0n; !signal.aborted;) {
      const from = after;
      const wishes = await onConnection((tx) => held.asked(tx, consumer, from));
      if (wishes.length === 0) break;
      after = wishes.at(-1)!.seq;
      const settledBefore = done.settled;
      const keys = new Set<string>();
      for (const { wish, aggregateId } of wishes) {
        if (wish === 'release' && aggregateId !== undefined) keys.add(aggregateId);
      }
      await release(keys, done, signal);
      const alone = wishes.filter(({ wish, aggregateId }) => wish === 'redrive' || aggregateId === undefined);
      await workOff(alone, done, signal);
      // Then it is not these messages: it would be the same with all others, however many there are.
      if (done.trouble && done.settled === settledBefore) break;
    }
    if (done.trouble) throw done.trouble.error;
    return done.settled;
  }

  /** In their order, until none is left; those that come meanwhile join behind, and so they go too. */
  async function release(keys: ReadonlySet<string>, done: Done, signal: AbortSignal): Promise<void> {
    const stoppedAt = new Map<string, bigint>();
    while (!signal.aborted) {
      const open = [...keys].filter((key) => !stoppedAt.has(key));
      if (open.length === 0) return;
      const ofEach = Math.ceil(atOnce / open.length);
      const line = await onConnection((tx) => held.firstOfKeys(tx, consumer, open, ofEach));
      if (line.length === 0) return;
      await workOff(line, done, signal, stoppedAt);
    }
  }

  async function onConnection<T>(work: (tx: Tx) => Promise<T>): Promise<T> {
    const client = await connectWithin(pool, handlerTimeoutMs);
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
