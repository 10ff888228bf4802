/** `twiceproof held ...`: messages that a consumer has not processed and that wait for a person. */
import type { Pool } from '../connection.ts';
import { createHeld, type Held, type HeldEntry, type HeldFilter, type HeldRow, type Wish } from '../inbox/held.ts';
import type { Tx } from '../tx.ts';
import type { Call, Command } from './call.ts';
import { onDatabase, reading } from './database.ts';
import { askAndWait, choiceOf, choose, chosenBy, filterOf, inBatches, seqsOf, toSeq } from './held-many.ts';

/** Where there may be more than anybody reads. */
const shownAtMost = 20;

const listCommand: Command = {
  summary: 'what is held, and why, in the order in which it will be processed',
  flags: ['schema', ...chosenBy, 'limit', 'after'],
  about: 'Page by page; below the first, how many there are of each consumer, kind, topic and reason.',
  async run(call) {
    const filter = filterOf(call);
    const limit = call.number('limit', { min: 1, max: 100_000 }) ?? 100;
    const after = toSeq('--after', call.text('after'));
    return onDatabase(async (pool) => {
      const held = createHeld({ schema: call.schema });
      const rows = await reading(pool, (tx) => held.find(tx, { ...filter, after, limit }));
      const sums = after === undefined ? await reading(pool, (tx) => sumUp(tx, held, filter)) : undefined;
      const next = rows.length < limit ? null : String(rows.at(-1)!.seq);
      const more = next === null ? [] : [`The next page: --after ${next}`];
      const lines = [...rows.map(describe), ...more, ...(sums && sums.count > 0 ? sums.lines : [])];
      call.answer({ held: rows.map(toJson), next, ...sums?.json }, lines.join('\n') || 'Nothing is held.');
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
      const held = createHeld({ schema: call.schema });
      const [[entry], [row]] = await reading(pool, async (tx) => [
        await held.find(tx, { seqs }),
        await held.list(tx, { seqs }),
      ]);
      if (!entry || !row) return notThere(call, seqs.map(String));
      const json = { ...toJson(entry), ...recordToJson(row, call.has('payload')) };
      call.answer({ held: json }, [describe(entry), JSON.stringify(json, undefined, 2)].join('\n'));
      return 0;
    });
  },
};

const redriveCommand: Command = {
  summary: 'run the handler for held messages, once each',
  word: '[SEQ...]',
  flags: ['schema', ...chosenBy, 'limit', 'wait-ms'],
  about:
    'The consumer that runs does it, in one transaction with the end of the held row: nothing is published again, and it may\nbe asked for at any time. What fails stays, with its new reason. Without SEQ: all that the flags say, of one consumer.',
  async run(call) {
    return ask(call, choiceOf(call), 'redrive');
  },
};

const releaseCommand: Command = {
  summary: 'run the handler for all that is parked of a key, or of all keys, in order',
  flags: ['schema', 'consumer', 'topic', 'key', 'older-than-hours', 'limit', 'wait-ms'],
  about:
    'The consumer that runs does it, until none is left of these keys. One that fails ends it for its key, and stays with what is\nbehind it.',
  async run(call) {
    call.required('consumer');
    return ask(call, { ...filterOf(call), kind: 'parked' }, 'release');
  },
};

const dropCommand: Command = {
  summary: 'give up held messages: they are never processed',
  word: '[SEQ...]',
  flags: ['schema', ...chosenBy, 'limit', 'yes'],
  about:
    'What waits behind one of them stays, until its key is released. Late and altered ones do not come back; what is unreadable\nor of the future is held again, or processed if its time has come, when its record comes again. Without SEQ: all that the\nflags say, of one consumer. What is held while it runs is not dropped. If it is killed, run it again.',
  async run(call) {
    const filter = choiceOf(call);
    return onDatabase(async (pool) => {
      const many = await choose(call, pool, filter);
      if (many.count === 0) return notThere(call, many.missing);
      if (!call.has('yes')) return showOnly(call, pool, many.held, filter);
      const shown: HeldEntry[] = [];
      let dropped = 0;
      await inBatches(many, async (tx, seqs) => {
        const gone = await many.held.drop(tx, seqs);
        dropped += gone.length;
        shown.push(...gone.slice(0, shownAtMost - shown.length));
      });
      const lines = [...shown.map(describe), ...andMore(dropped, shown), ...many.missing.map(isNotHeld)];
      call.answer(
        { outcome: 'dropped', count: dropped, dropped: shown.map(toJson), missing: many.missing },
        [`Dropped: ${dropped}`, ...lines].join('\n'),
      );
      return many.missing.length === 0 ? 0 : 1;
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

async function ask(call: Call, filter: HeldFilter, wish: Wish): Promise<number> {
  const waitMs = call.number('wait-ms', { min: 0, max: 86_400_000 }) ?? 10_000;
  return onDatabase(async (pool) => {
    const many = await choose(call, pool, filter);
    const { held, missing } = many;
    if (many.count === 0) return notThere(call, missing);
    const { settled, kept, waiting, left } = await askAndWait(many, wish, waitMs);
    const some = async (isAsked: boolean): Promise<HeldEntry[]> =>
      reading(pool, (tx) => held.find(tx, { ...left, isAsked, limit: shownAtMost }));
    const keptRows = kept > 0 ? await some(false) : [];
    const consumers = waiting > 0 ? new Set((await some(true)).map(({ consumer }) => consumer)) : new Set();
    const outcome = waiting > 0 ? 'not taken up' : kept > 0 ? 'kept' : 'settled';
    const lines = [
      `Settled: ${settled}`,
      ...keptRows.map((row) => `Kept: ${describe(row)}`),
      ...andMore(kept, keptRows),
      ...missing.map(isNotHeld),
      ...(waiting === 0
        ? []
        : [
            `${waiting} were not taken up within ${waitMs} ms: does ${[...consumers].join(', ')} run? It does them then.`,
          ]),
    ];
    call.answer({ outcome, settled, kept, waiting, missing, firstKept: keptRows.map(toJson) }, lines.join('\n'));
    return outcome === 'settled' && missing.length === 0 ? 0 : 1;
  });
}

async function showOnly(call: Call, pool: Pool, held: Held, filter: HeldFilter): Promise<number> {
  const { rows, sums } = await reading(pool, async (tx) => ({
    rows: await held.find(tx, { ...filter, limit: shownAtMost }),
    sums: await sumUp(tx, held, filter),
  }));
  const lines = [...rows.map(describe), ...andMore(sums.count, rows), ...sums.lines];
  call.answer(
    { outcome: 'not done', held: rows.map(toJson), ...sums.json },
    [...lines, 'To give up for good what is there now: --yes'].join('\n'),
  );
  return 2;
}

async function sumUp(
  tx: Tx,
  held: Held,
  filter: HeldFilter,
): Promise<{ count: number; lines: string[]; json: object }> {
  const { count } = await held.tally(tx, filter);
  const groups = await held.groups(tx, { ...filter, limit: shownAtMost });
  const rest = count - groups.reduce((sum, group) => sum + group.count, 0);
  const lines = groups.map(
    ({ consumer, kind, topic, reason, count: its, oldest }) =>
      `  ${its} ${consumer} ${kind} of ${topic}, since ${oldest.toISOString()}: ${reason}`,
  );
  const others = rest > 0 ? [`  ${rest} for other reasons`] : [];
  return { count, lines: [`In all: ${count}`, ...lines, ...others], json: { count, groups } };
}

function notThere(call: Call, missing: readonly string[]): number {
  const text = missing.length > 0 ? `Not held: ${missing.join(', ')}` : 'Nothing of this is held.';
  call.answer({ outcome: 'nothing there', missing }, text);
  return 1;
}

function isNotHeld(seq: string): string {
  return `${seq} is not held.`;
}

function andMore(count: number, shown: readonly unknown[]): string[] {
  return count > shown.length ? [`... and ${count - shown.length} more`] : [];
}

function describe(entry: HeldEntry): string {
  const { seq, consumer, kind, aggregateId, id, topic, partition, offset, reason, heldAt, asked } = entry;
  const at = `${topic}/${partition}${offset === undefined ? '' : ` at ${offset}`}`;
  const who = id === undefined ? 'without id' : `${id} of ${JSON.stringify(aggregateId)}`;
  const wish = asked === undefined ? '' : `; ${asked} is asked for`;
  return `${seq} ${consumer} ${kind}: ${who}, ${at}, since ${heldAt.toISOString()}: ${reason}${wish}`;
}

function toJson({ seq, offset, id, aggregateId, asked, ...rest }: HeldEntry): object {
  const named = { id: id ?? null, aggregateId: aggregateId ?? null, asked: asked ?? null };
  return { seq: String(seq), ...rest, ...named, offset: offset === undefined ? null : String(offset) };
}

/** The bytes only where they were asked for: they may hold personal data. */
function recordToJson({ delivery: { key, value, headers } }: HeldRow, withPayload: boolean): object {
  return {
    headers: headers.map(([name, bytes]) => [name, Buffer.from(bytes).toString()]),
    ...(withPayload && {
      keyBase64: key ? Buffer.from(key).toString('base64') : null,
      payloadBase64: Buffer.from(value).toString('base64'),
    }),
  };
}
