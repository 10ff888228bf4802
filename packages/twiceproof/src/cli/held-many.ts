/** Which held messages a command means, and what is done with all of them: in batches, however many they are. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from '../connection.ts';
import { createHeld, heldKinds, type Held, type HeldFilter, type HeldKind, type Wish } from '../inbox/held.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { toNumber, WrongCall, type Call, type FlagName } from './call.ts';
import { reading } from './database.ts';

export interface Many {
  held: Held;
  pool: Pool;
  call: Call;
  /** Those that were there when we looked: what comes meanwhile is not meant. */
  chosen: HeldFilter & { upTo: bigint };
  count: number;
  /** Of those that were named, those that are not held. */
  missing: string[];
}

const inTransaction = 1_000;
const lookEveryMs = 50;
const all = Number.MAX_SAFE_INTEGER;

export const chosenBy = ['consumer', 'kind', 'topic', 'key', 'older-than-hours'] as const satisfies FlagName[];

export function filterOf(call: Call): HeldFilter {
  const kind = call.text('kind') as HeldKind | undefined;
  if (kind !== undefined && !heldKinds.includes(kind)) throw new WrongCall(`--kind is one of ${heldKinds.join(', ')}`);
  const hours = call.number('older-than-hours', { min: 0, max: 1_000_000, whole: false });
  return {
    kind,
    consumer: call.text('consumer'),
    topic: call.text('topic'),
    aggregateId: call.text('key'),
    olderThanMs: hours === undefined ? undefined : hours * 3_600_000,
  };
}

/** Either by their numbers, or by what they have in common: of one consumer at least. */
export function choiceOf(call: Call): HeldFilter {
  const seqs = seqsOf(call);
  if (seqs.length === 0) {
    if (call.text('consumer') === undefined) throw new WrongCall('SEQ... is needed, or --consumer');
    return filterOf(call);
  }
  const more = [...chosenBy, 'limit' as const].filter((flag) => call.has(flag));
  if (more.length > 0) throw new WrongCall(`either SEQ... or --${more.join(', --')}`);
  return { seqs };
}

export function seqsOf(call: Call): bigint[] {
  return [...new Set(call.words)].map((word) => toSeq('SEQ', word)!);
}

export function toSeq(name: string, text: string | undefined): bigint | undefined {
  const number = toNumber(name, text, { min: 1, max: Number.MAX_SAFE_INTEGER });
  return number === undefined ? undefined : BigInt(number);
}

export async function choose(call: Call, pool: Pool, filter: HeldFilter): Promise<Many> {
  const held = createHeld({ schema: call.schema });
  const limit = call.number('limit', { min: 1, max: all });
  return reading(pool, async (tx) => {
    const { count, last } = await held.tally(tx, filter);
    const { seqs = [] } = filter;
    const found = new Set(
      seqs.length === 0 ? [] : (await held.find(tx, { seqs, limit: seqs.length })).map(({ seq }) => seq),
    );
    const missing = seqs.filter((seq) => !found.has(seq)).map(String);
    return { held, pool, call, chosen: { ...filter, upTo: last }, count: Math.min(count, limit ?? all), missing };
  });
}

/**
 * Each batch in a transaction of its own. Whoever kills us leaves whole batches behind, and what is left is chosen again when
 * the command is run again. Answers the last one that was chosen.
 */
export async function inBatches(
  { held, pool, call, chosen, count }: Many,
  work: (tx: Tx, seqs: bigint[]) => Promise<void>,
): Promise<bigint> {
  let after = 0n;
  for (let done = 0; done < count;) {
    const from = after;
    const limit = Math.min(inTransaction, count - done);
    const seqs = await transaction(pool, async (tx) => {
      const batch = (await held.find(tx, { ...chosen, after: from, limit })).map(({ seq }) => seq);
      if (batch.length > 0) await work(tx, batch);
      return batch;
    });
    if (seqs.length === 0) break;
    done += seqs.length;
    after = seqs.at(-1)!;
    call.progress(`${done} of ${count} ...`);
  }
  return after;
}

export interface Asked {
  settled: number;
  /** They have failed, or must not be run. */
  kept: number;
  waiting: number;
  /** What was asked for, as far as it is still there. */
  left: HeldFilter;
}

/** Nobody but the consumer has the handler, so the wish is left for it, and what it does is watched. */
export async function askAndWait(many: Many, wish: Wish, waitMs: number): Promise<Asked> {
  const { held, pool, call, chosen } = many;
  let count = 0;
  const asked: bigint[] = [];
  const last = await inBatches(many, async (tx, seqs) => {
    count += await held.ask(tx, seqs, wish);
    if (mayBecomeLate(chosen)) asked.push(...seqs);
  });
  const left = mayBecomeLate(chosen) ? { seqs: asked } : { ...chosen, upTo: last };
  let [before, movedAt] = [Infinity, performance.now()];
  for (;;) {
    const lookedAt = performance.now();
    const { count: there, asked: waiting } = await reading(pool, (tx) => held.tally(tx, left));
    const now = performance.now();
    // One that fails again is still there, and does not wait any more.
    if (there + waiting < before) [before, movedAt] = [there + waiting, now];
    if (waiting === 0 || now - movedAt > waitMs) {
      return { settled: Math.max(0, count - there), kept: there - waiting, waiting, left };
    }
    call.progress(`${count - waiting} of ${count} are done ...`);
    // Counting many takes long, and the consumer has more important things to do with the database.
    await delay(Math.max(lookEveryMs, 4 * (now - lookedAt)));
  }
}

/** Of these the consumer finds out that they may have run, and keeps them as late ones: what was asked for is them still. */
function mayBecomeLate({ kind }: HeldFilter): boolean {
  return kind === 'unreadable' || kind === 'future';
}
