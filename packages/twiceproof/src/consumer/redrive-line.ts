import { TwiceproofError } from '../errors.ts';
import { createHeld, type HeldRow, type InLine, type ToKeep } from '../inbox/held.ts';
import { point } from '../points.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { HandlerError, isElsewhere, isOfMessage } from './decide.ts';
import { createSettle, Refused, type SettleOptions } from './redrive-settle.ts';

export interface LineOptions extends SettleOptions {
  idleTimeoutMs: number;
}

/** What one look for wishes has come to. */
export interface Done {
  settled: number;
  /** What keeps a wish from being done now. It stands; the others are not to wait for it. */
  trouble?: { error: unknown };
}

interface Attempt {
  taken: readonly HeldRow[];
  failure?: { error: unknown };
}

/** `stoppedAt`: the keys that are to stop at the first one that stays, and where that is. */
type WorkOff = (
  line: readonly InLine[],
  done: Done,
  signal: AbortSignal,
  stoppedAt?: Map<string, bigint>,
) => Promise<void>;

/**
 * Runs held messages in their order, in one transaction if nothing fails. What fails is halved until the one that fails
 * stands alone: so only those are kept that have failed themselves.
 */
export function createLine(options: LineOptions): WorkOff {
  const { pool, schema, consumer, idleTimeoutMs, handlerTimeoutMs } = options;
  const held = createHeld({ schema });
  const settle = createSettle(options);
  // One that is frozen must not keep its messages from others, nor their keys.
  const localSettings = { idle_in_transaction_session_timeout: `${Math.round(idleTimeoutMs)}ms` };
  const statementWithinMs = 2 * handlerTimeoutMs;

  /** In one transaction. Throws where the database cannot be reached: then there is nothing to be found by halving. */
  async function attempt(seqs: readonly bigint[]): Promise<Attempt> {
    let taken: HeldRow[] = [];
    let isReached = false;
    const work = async (tx: Tx): Promise<void> => {
      isReached = true;
      taken = [];
      taken = await held.take(tx, seqs);
      if (taken.length === 0) return;
      await point('consumer:redrive-taken');
      await settle(tx, taken);
      await point('consumer:redriven');
    };
    try {
      await transaction(pool, work, { localSettings, statementWithinMs });
      return { taken };
    } catch (error) {
      if (!isReached) throw error;
      return { taken, failure: { error } };
    }
  }

  async function keep(rows: readonly ToKeep[]): Promise<void> {
    await transaction(pool, (tx) => held.keep(tx, consumer, rows));
  }

  return async function workOff(
    line: readonly InLine[],
    done: Done,
    signal: AbortSignal,
    stoppedAt?: Map<string, bigint>,
  ): Promise<void> {
    const isBehind = ({ aggregateId, seq }: InLine): boolean =>
      aggregateId !== undefined && seq > (stoppedAt?.get(aggregateId) ?? seq);
    const stopAt = ({ aggregateId, seq }: InLine): void => {
      if (aggregateId !== undefined && !stoppedAt?.has(aggregateId)) stoppedAt?.set(aggregateId, seq);
    };
    const parts = [line];
    for (let part = parts.shift(); part && !signal.aborted; part = parts.shift()) {
      const open = part.filter((each) => !isBehind(each));
      if (open.length === 0) continue;
      const { taken, failure } = await attempt(open.map(({ seq }) => seq));
      if (!failure) {
        done.settled += taken.length;
        continue;
      }
      const { error } = failure;
      if (error instanceof Refused) {
        const kept = refusedOf(taken, error);
        kept.forEach(stopAt);
        await keep(kept);
        parts.unshift(open.filter(({ seq }) => !error.refusals.has(seq)));
      } else if (open.length > 1) {
        const half = Math.ceil(open.length / 2);
        parts.unshift(open.slice(0, half), open.slice(half));
      } else {
        open.forEach(stopAt);
        const cause = error instanceof HandlerError ? error.cause : error;
        // A service of the handler's own that is away is its message's, as in a batch.
        const isToBlame = error instanceof HandlerError ? isOfMessage(error) : !isElsewhere(error);
        if (taken.length === 0 || !isToBlame) done.trouble ??= { error: cause };
        else await keep(taken.map((row) => ({ ...row, reason: reasonOf(cause) })));
      }
    }
  };
}

function refusedOf(taken: readonly HeldRow[], { refusals }: Refused): ToKeep[] {
  return taken.flatMap((row) => {
    const refusal = refusals.get(row.seq);
    if (!refusal) return [];
    const { why, as } = refusal;
    return [{ ...row, reason: reasonOf(new TwiceproofError('TP_NOT_REDRIVEN', why)), as }];
  });
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
