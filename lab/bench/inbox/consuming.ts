/** The case `consume`: who consumes which topic in which database, one after another. */
import { coresBetween, readCpu } from '../cpu.ts';
import { rounded } from '../measure.ts';
import type { Database, World } from '../relay/world.ts';
import { ways, type ConsumeScale, type DuplicatesPercent, type Way } from './cases.ts';
import { measureConsume, watchedGroups, type ConsumeRun } from './consume.ts';
import { prepareTextbook, startDiscard, startPayments, startTextbook, type ConsumerProgram } from './programs.ts';
import { acceptText, consumer, newIds } from './statement.ts';
import { openToday } from './store.ts';
import { fillTopic, type FilledTopic } from './topic.ts';

export interface ConsumeRound {
  /** The ceiling: nothing is done with them. */
  discard: ConsumeRun;
  /** In batches of 500 through the inbox alone, without Kafka and without charges. */
  raw: ConsumeRun;
  /** By the percentage of duplicates. */
  ways: Partial<Record<Way, Record<string, ConsumeRun>>>;
}

export type Topics = Record<0 | 5 | 30, FilledTopic>;

export interface ConsumeContext {
  world: World;
  scale: ConsumeScale;
  topics: Topics;
  signal: AbortSignal;
  say(text: string): void;
}

const percents: readonly (0 | 5 | 30)[] = [0, 5, 30];
const rawBatch = 500;
let groups = 0;

export async function fillTopics(world: World, { messages }: ConsumeScale, signal: AbortSignal): Promise<Topics> {
  const filled: Partial<Topics> = {};
  for (const percent of percents) {
    filled[percent] = await fillTopic(world, { messages, duplicatesPercent: percent, signal });
  }
  return filled as Topics;
}

export async function runConsume(context: ConsumeContext): Promise<ConsumeRound> {
  const { scale } = context;
  const result: ConsumeRound = { discard: await discard(context), raw: await raw(context), ways: {} };
  const keep = (way: Way, percent: DuplicatesPercent, run: ConsumeRun): void => {
    (result.ways[way] ??= {})[percent] = run;
    const { node, postgres } = run.cpuUs;
    const cost = `${node} us of Node and ${postgres} us of Postgres each`;
    context.say(`${way}, ${percent} % duplicates: ${Math.round(run.perSecond)} messages/s, ${cost}`);
  };
  for (const percent of percents) {
    for (const way of ways.filter((each) => scale.ways[percent].includes(each))) {
      const database = await newDatabase(context.world, way);
      try {
        keep(way, percent, await consume(context, way, context.topics[percent], database));
        // What was consumed is read again, so the same database is needed.
        if (way === 'set' && percent === 0) await again(context, database, keep);
      } finally {
        await database.drop();
      }
    }
  }
  if (scale.ways[100].includes('textbook')) keep('textbook', 100, await textbookAgain(context));
  return result;
}

async function newDatabase(world: World, way: Way): Promise<Database> {
  const database = await world.database({ shape: 'ours', shards: 1 }, 0);
  if (way === 'textbook') await prepareTextbook(database);
  return database;
}

async function consume(
  { world, scale, signal }: ConsumeContext,
  way: Way,
  topic: FilledTopic,
  database: Database,
): Promise<ConsumeRun> {
  signal.throwIfAborted();
  const where = { world, topic: topic.name, group: `bench-${(groups += 1)}` };
  const start = async (): Promise<ConsumerProgram> =>
    way === 'textbook' ? startTextbook(where, database) : startPayments(where, database, way);
  const charges = way === 'textbook' ? 'textbook_charges' : 'charges';
  const { warmS, capS } = scale;
  return measureConsume({ world, database, topic, warmS, capS: capOf(way, capS), start, charges, signal });
}

/** All of it, where another run needs an inbox that knows the whole topic. */
function capOf(way: Way, capS: number): number {
  return way === 'set' ? 10 * capS : capS;
}

/** By another group, after the position was taken away: from the beginning, with the inbox as it is. */
async function again(
  context: ConsumeContext,
  database: Database,
  keep: (way: Way, percent: 100, run: ConsumeRun) => void,
): Promise<void> {
  for (const way of (['set', 'each'] as const).filter((each) => context.scale.ways[100].includes(each))) {
    await database.client.query('TRUNCATE twiceproof.inbox_position');
    keep(way, 100, await consume(context, way, context.topics[0], database));
  }
}

async function textbookAgain(context: ConsumeContext): Promise<ConsumeRun> {
  const database = await newDatabase(context.world, 'textbook');
  try {
    const topic = context.topics[0];
    await database.client.query('INSERT INTO textbook_inbox SELECT unnest($1::uuid[])', [topic.ids]);
    await database.client.query('VACUUM (ANALYZE) textbook_inbox');
    const run = await consume(context, 'textbook', { ...topic, orders: 0 }, database);
    return run;
  } finally {
    await database.drop();
  }
}

async function discard({ world, scale, topics, signal, say }: ConsumeContext): Promise<ConsumeRun> {
  const where = { world, topic: topics[0].name, group: `bench-${(groups += 1)}` };
  const { warmS, capS } = scale;
  const start = async (): Promise<ConsumerProgram> => startDiscard(where);
  const topic = topics[0];
  const run = await measureConsume({
    world,
    database: undefined,
    topic,
    warmS,
    capS,
    start,
    charges: undefined,
    signal,
  });
  say(`consume and discard: ${Math.round(run.perSecond)} messages/s`);
  return run;
}

async function raw({ world, scale, signal, say }: ConsumeContext): Promise<ConsumeRun> {
  const database = await world.database({ shape: 'ours', shards: 1 }, 0);
  try {
    const { client } = database;
    await openToday(client);
    const accept = async (): Promise<void> => {
      await client.query('BEGIN');
      await client.query(acceptText, [consumer, newIds(rawBatch, 7), Array.from({ length: rawBatch }, () => '1')]);
      await client.query('COMMIT');
    };
    for (const until = performance.now() + 1_000 * scale.warmS; performance.now() < until;) await accept();
    const watched = watchedGroups(world, process.pid);
    const before = readCpu(watched);
    let messages = 0;
    for (; performance.now() - before.atMs < 1_000 * scale.capS; messages += rawBatch) {
      signal.throwIfAborted();
      await accept();
    }
    const after = readCpu(watched);
    const seconds = (after.atMs - before.atMs) / 1_000;
    const { others, ...cores } = coresBetween(before, after);
    const us = (share: number): number => rounded((1e6 * share * seconds) / messages, 1);
    const cpuUs = { node: us(cores.node), postgres: us(cores.postgres), brokers: us(cores.brokers) };
    const perSecond = rounded(messages / seconds, 1);
    say(`raw batched INSERT: ${Math.round(perSecond)} messages/s, ${cpuUs.postgres} us of Postgres each`);
    return { perSecond, messages, cpuUs, wrongCharges: 0, otherCores: rounded(others, 2) };
  } finally {
    await database.drop();
  }
}
