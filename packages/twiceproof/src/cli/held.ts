/** `twiceproof held ...`: messages that a consumer has not processed and that wait for a person. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from '../connection.ts';
import { createHeld, heldKinds, type Held, type HeldKind, type HeldRow, type Wish } from '../inbox/held.ts';
import { transaction } from '../transaction.ts';
import { toNumber, WrongCall, type Call, type Command } from './call.ts';
import { onDatabase, reading } from './database.ts';

const lookEveryMs = 50;
/** Of one key. */
const mostOfKey = 1_000_000;

const listCommand: Command = {
  summary: 'what is held, and why, in the order in which it will be processed',
  flags: ['schema', 'consumer', 'kind', 'key', 'limit'],
  async run(call) {
    const kind = call.text('kind') as HeldKind | undefined;
    if (kind !== undefined && !heldKinds.includes(kind))
      throw new WrongCall(`--kind is one of ${heldKinds.join(', ')}`);
    const limit = call.number('limit', { min: 1, max: mostOfKey });
    const filter = { consumer: call.text('consumer'), aggregateId: call.text('key'), kind, limit };
    return onDatabase(async (pool) => {
      const rows = await reading(pool, (tx) => heldOf(call).list(tx, filter));
      call.answer({ held: rows.map(toJson) }, rows.map(describe).join('\n') || 'Nothing is held.');
      return 0;
    });
  },
};

const showCommand: Command = {
  summary: 'one held message, with its headers; its bytes with --payload',
  word: 'SEQ',
  flags: ['schema', 'payload'],
  async run(call) {
    const seqs = seqsOf(call);
    return onDatabase(async (pool) => {
      const [row] = await reading(pool, (tx) => heldOf(call).list(tx, { seqs }));
      if (!row) return notThere(call, seqs);
      const json = inFull(row, call.has('payload'));
      call.answer({ held: json }, [describe(row), JSON.stringify(json, undefined, 2)].join('\n'));
      return 0;
    });
  },
};

const redriveCommand: Command = {
  summary: 'run the handler for held messages, once each',
  word: 'SEQ...',
  flags: ['schema', 'wait-ms'],
  about:
    'The consumer that runs does it, in one transaction with the end of the held row: nothing is published again, and it may\nbe asked for at any time. What fails stays, with its new reason.',
  async run(call) {
    const seqs = seqsOf(call);
    return onDatabase(async (pool) => askAndWait(call, pool, seqs, 'redrive'));
  },
};

const releaseCommand: Command = {
  summary: 'run the handler for all that is parked of a key, in order',
  flags: ['schema', 'consumer', 'key', 'wait-ms'],
  about:
    'The consumer that runs does it, until none is left. One that fails ends it, and stays with what is behind it.',
  async run(call) {
    const filter = { consumer: call.required('consumer'), aggregateId: call.required('key') };
    return onDatabase(async (pool) => {
      const parked = { ...filter, kind: 'parked', limit: mostOfKey } as const;
      const rows = await reading(pool, (tx) => heldOf(call).list(tx, parked));
      if (rows.length === 0) {
        call.answer({ outcome: 'nothing there' }, 'Nothing is parked of this key.');
        return 1;
      }
      const seqs = rows.map(({ seq }) => seq);
      return askAndWait(call, pool, seqs, 'release');
    });
  },
};

const dropCommand: Command = {
  summary: 'give up held messages: they are never processed',
  word: 'SEQ...',
  flags: ['schema', 'yes'],
  about:
    'What waits behind one of them stays, until its key is released. A late one does not come back; what is altered, unreadable\nor of the future is held again, or processed if its time has come, when its record comes again.',
  async run(call) {
    const seqs = seqsOf(call);
    return onDatabase(async (pool) => {
      const held = heldOf(call);
      if (!call.has('yes')) {
        const rows = await reading(pool, (tx) => held.list(tx, { seqs, limit: seqs.length }));
        const shown = rows.map(describe).join('\n') || 'Nothing of this is held.';
        call.answer({ outcome: 'not done', held: rows.map(toJson) }, `${shown}\nTo give it up for good: --yes`);
        return 2;
      }
      const dropped = await transaction(pool, async (tx) => {
        const taken: HeldRow[] = [];
        for (const seq of seqs) {
          const row = await held.take(tx, seq);
          if (row) await held.settled(tx, row);
          if (row) taken.push(row);
        }
        return taken;
      });
      if (dropped.length === 0) return notThere(call, seqs);
      const missing = seqs.filter((seq) => dropped.every((row) => row.seq !== seq)).map(String);
      call.answer(
        { outcome: 'dropped', dropped: dropped.map(toJson), missing },
        [`Dropped: ${dropped.length}`, ...dropped.map(describe), ...missing.map((seq) => `${seq} is not held.`)].join(
          '\n',
        ),
      );
      return missing.length === 0 ? 0 : 1;
    });
  },
};

export const heldCommands: Readonly<Record<string, Command>> = {
  list: listCommand,
  show: showCommand,
  redrive: redriveCommand,
  release: releaseCommand,
  drop: dropCommand,
};

/** Nobody but the consumer has the handler, so the wish is left for it, and what it does is watched. */
async function askAndWait(call: Call, pool: Pool, seqs: readonly bigint[], wish: Wish): Promise<number> {
  const held = heldOf(call);
  const waitMs = call.number('wait-ms', { min: 0, max: 86_400_000 }) ?? 10_000;
  const asked = await transaction(pool, async (tx) => {
    const rows = await held.list(tx, { seqs, limit: seqs.length });
    await held.ask(tx, seqs, wish);
    return rows.map(({ seq }) => seq);
  });
  const found = new Set(asked);
  const missing = seqs.filter((seq) => !found.has(seq)).map(String);
  if (asked.length === 0) return notThere(call, seqs);
  const deadline = performance.now() + waitMs;
  for (;;) {
    const left = await reading(pool, (tx) => held.list(tx, { seqs: asked, limit: asked.length }));
    const waiting = left.filter((row) => row.asked !== undefined);
    if (waiting.length === 0 || performance.now() > deadline) {
      return tellOutcome(call, { settled: asked.length - left.length, waiting, left, missing, waitMs });
    }
    call.progress(`${asked.length - left.length} of ${asked.length} are done ...`);
    await delay(lookEveryMs);
  }
}

function tellOutcome(
  call: Call,
  found: { settled: number; waiting: HeldRow[]; left: HeldRow[]; missing: string[]; waitMs: number },
): number {
  const { settled, waiting, left, missing, waitMs } = found;
  const kept = left.filter((row) => row.asked === undefined);
  const outcome = waiting.length > 0 ? 'not taken up' : kept.length > 0 ? 'kept' : 'settled';
  const consumers = [...new Set(waiting.map(({ consumer }) => consumer))].join(', ');
  const lines = [
    `Settled: ${settled}`,
    ...kept.map((row) => `Kept: ${describe(row)}`),
    ...missing.map((seq) => `${seq} is not held.`),
    ...(waiting.length === 0
      ? []
      : [`${waiting.length} were not taken up within ${waitMs} ms: does ${consumers} run? It does them when it does.`]),
  ];
  call.answer({ outcome, settled, kept: kept.map(toJson), waiting: waiting.length, missing }, lines.join('\n'));
  return outcome === 'settled' && missing.length === 0 ? 0 : 1;
}

function heldOf(call: Call): Held {
  return createHeld({ schema: call.schema });
}

function seqsOf(call: Call): bigint[] {
  const numbers = call.words.map((word) => toNumber('SEQ', word, { min: 1, max: Number.MAX_SAFE_INTEGER })!);
  return [...new Set(numbers)].map(BigInt);
}

function notThere(call: Call, seqs: readonly bigint[]): number {
  call.answer({ outcome: 'nothing there', missing: seqs.map(String) }, `Not held: ${seqs.join(', ')}`);
  return 1;
}

function describe({ seq, consumer, kind, aggregateId, id, delivery, reason, heldAt, asked }: HeldRow): string {
  const { lane, position } = delivery;
  const at = `${lane.topic}/${lane.partition}${position ? ` at ${position.offset}` : ''}`;
  const who = id === undefined ? 'without id' : `${id} of ${JSON.stringify(aggregateId)}`;
  const wish = asked === undefined ? '' : `; ${asked} is asked for`;
  return `${seq} ${consumer} ${kind}: ${who}, ${at}, since ${heldAt.toISOString()}: ${reason}${wish}`;
}

function toJson({ seq, content: _, delivery, id, aggregateId, asked, ...rest }: HeldRow): object {
  const { lane, position } = delivery;
  const offset = position ? String(position.offset) : null;
  const named = { id: id ?? null, aggregateId: aggregateId ?? null };
  return { seq: String(seq), ...rest, ...named, asked: asked ?? null, ...lane, offset };
}

/** The bytes only where they were asked for: they may hold personal data. */
function inFull(row: HeldRow, withPayload: boolean): object {
  const { key, value, headers } = row.delivery;
  return {
    ...toJson(row),
    headers: headers.map(([name, bytes]) => [name, Buffer.from(bytes).toString()]),
    ...(withPayload && {
      keyBase64: key ? Buffer.from(key).toString('base64') : null,
      payloadBase64: Buffer.from(value).toString('base64'),
    }),
  };
}
