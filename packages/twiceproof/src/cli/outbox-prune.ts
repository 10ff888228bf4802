import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from '../connection.ts';
import {
  addPartition,
  defaultPartition,
  deleteFromDefault,
  dropPartition,
  emptyPartition,
  isPublished,
  publishedBelow,
  rangesAhead,
  readPartitions,
  topicsIn,
} from '../outbox/retention.ts';
import { TwiceproofError } from '../errors.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { WrongCall, type Call, type Command } from './call.ts';
import { isLockTimeout, longReadMs, onDatabase, reading, saying } from './database.ts';

export interface PruneOptions {
  schema?: string | undefined;
  /** How long rows stay, or who says so for the topics that they are for. Nobody may be able to: then why not. */
  retention: number | ((topics: readonly string[]) => Promise<number | { unknown: string }>);
  stepXids: bigint;
  /** How long a writer may have to wait for us, at a time. */
  maxWaitMs: number;
  /** How often it is tried. Defaults to 20. */
  attempts?: number;
  onProgress?(text: string): void;
}

export interface Pruned {
  /** Every transaction below this id has ended, and is published. */
  publishedBelow: string;
  made: string[];
  removed: string[];
  /** Emptied, though their table is left for the next time: the outbox was never free of writers for a moment. */
  emptied: string[];
  deleted: number;
  /** What could not be done now, and why. The next call tries again. */
  left: string[];
  /** Of these nobody knows how long their rows stay, and the next call will not either. */
  unknown: string[];
}

const defaultAttempts = 20;
const pauseMs = 250;
/** At some 25 rows in a block about 1,000 rows in a transaction. */
const blocksAtOnce = 40;

export async function prune(pool: Pool, options: PruneOptions): Promise<Pruned> {
  const { schema } = options;
  const below = await reading(pool, (tx) => publishedBelow(tx, schema));
  const done: Pruned = {
    publishedBelow: String(below),
    made: [],
    removed: [],
    emptied: [],
    deleted: 0,
    left: [],
    unknown: [],
  };
  await makeAhead(pool, options, done);
  await removePartitions(pool, options, done);
  await pruneDefault(pool, options, done);
  return done;
}

/** Short attempts with pauses between: whoever queues behind a lock that is waited for waits no longer than one. */
async function inShortAttempts<T>(
  pool: Pool,
  { maxWaitMs, attempts = defaultAttempts }: PruneOptions,
  work: (tx: Tx) => Promise<T>,
): Promise<T | 'busy'> {
  const localSettings = { lock_timeout: `${maxWaitMs}` };
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    try {
      return await transaction(pool, work, { localSettings, statementWithinMs: longReadMs });
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
    }
    await delay(pauseMs * (0.5 + Math.random()));
  }
  return 'busy';
}

async function makeAhead(pool: Pool, options: PruneOptions, done: Pruned): Promise<void> {
  const { schema, stepXids, maxWaitMs, onProgress } = options;
  const found = await reading(pool, (tx) => readPartitions(tx, schema));
  for (const range of rangesAhead(found, stepXids)) {
    onProgress?.(`making the partition from ${range.from} on ...`);
    try {
      const made = await inShortAttempts(pool, options, async (tx) => {
        // The server looks through the default partition meanwhile, and its writers wait.
        await tx.query(`SELECT set_config('statement_timeout', $1, true)`, [`${2 * maxWaitMs}`]);
        return addPartition(tx, range, schema);
      });
      if (made === 'busy')
        done.left.push(`the partition from ${range.from} on was not made: the default partition is in use`);
      else done.made.push(made);
    } catch (error) {
      const { code, message } = error as { code?: string; message: string };
      // Rows of that range stand in the default partition, or it took too long to find out.
      if (code !== '23514' && code !== '57014') throw error;
      done.left.push(`the partition from ${range.from} on was not made: ${message}`);
    }
  }
}

/** From the oldest on, and no further than the first that has to stay: those behind it are younger. */
async function removePartitions(pool: Pool, options: PruneOptions, done: Pruned): Promise<void> {
  const { schema, onProgress } = options;
  const { ranges } = await reading(pool, (tx) => readPartitions(tx, schema));
  for (const partition of ranges) {
    // Before its rows are read for their topics.
    if (!(await reading(pool, (tx) => isPublished(tx, partition, schema)))) return;
    const retentionMs = await retentionOf(pool, { name: partition.name, below: partition.to }, options, done);
    if (retentionMs === undefined) return;
    const emptying = inShortAttempts(pool, options, (tx) => emptyPartition(tx, partition, { retentionMs, schema }));
    const emptied = await saying(onProgress, `looking at ${partition.name} ...`, emptying);
    if (emptied === 'busy') done.left.push(`${partition.name} was not emptied: it is being read`);
    if (emptied !== 'emptied') return;
    const dropped = await inShortAttempts(pool, options, async (tx) => {
      await dropPartition(tx, partition);
      return 'dropped' as const;
    });
    (dropped === 'busy' ? done.emptied : done.removed).push(partition.name);
  }
}

/** Of the rows that may go; where there is none it does not matter. Undefined where nobody knows. */
async function retentionOf(
  pool: Pool,
  { name, below }: { name: string; below: bigint },
  { retention, onProgress }: PruneOptions,
  done: Pruned,
): Promise<number | undefined> {
  if (typeof retention === 'number') return retention;
  const reads = reading(pool, (tx) => topicsIn(tx, name, below));
  const topics = await saying(onProgress, `reading for which topics ${name} has rows ...`, reads);
  if (topics.length === 0) return longestRetentionMs;
  const told = await retention(topics);
  if (typeof told === 'number') return told;
  done.unknown.push(`${name} was left as it is: ${told.unknown}`);
  return undefined;
}

/** As much time between as within, so that others have their half of the disk. */
async function pruneDefault(pool: Pool, options: PruneOptions, done: Pruned): Promise<void> {
  const { schema } = options;
  const below = BigInt(done.publishedBelow);
  const retentionMs = await retentionOf(pool, { name: defaultPartition(schema), below }, options, done);
  if (retentionMs === undefined) return;
  for (let from = 0, blocks = 1; from < blocks; from += blocksAtOnce) {
    const began = performance.now();
    const { count, blocksInTable } = await transaction(pool, (tx) =>
      deleteFromDefault(tx, { blocks: { from, to: from + blocksAtOnce }, below, retentionMs, schema }),
    );
    done.deleted += count;
    blocks = blocksInTable;
    options.onProgress?.(`${done.deleted} rows deleted; block ${from} of ${blocks} of the default partition ...`);
    if (count > 0) await delay(performance.now() - began);
  }
}

const hourMs = 3_600_000;
const longestRetentionMs = 1_000_000 * hourMs;

export const pruneCommand: Command = {
  summary: 'remove what is published and older than the retention; make partitions ahead',
  flags: ['schema', 'brokers', 'topics', 'retention-hours', 'partition-xids', 'max-wait-ms'],
  about:
    'Run it every hour. Only what every shard has published goes, never by date alone; the role must own the tables.\nRows stay for the retention of their topics, which the brokers are asked for, to be able to publish them again.',
  async run(call) {
    const retention = retentionIn(call);
    const step = call.number('partition-xids', { min: 1, max: Number.MAX_SAFE_INTEGER }) ?? 10_000_000;
    const maxWaitMs = call.number('max-wait-ms', { min: 1, max: 3_600_000 }) ?? 500;
    return onDatabase(async (pool) => {
      const pruned = await prune(pool, {
        schema: call.schema,
        retention: await retention(),
        stepXids: BigInt(step),
        maxWaitMs,
        onProgress: call.progress,
      });
      call.answer(pruned, describe(pruned));
      return pruned.unknown.length === 0 ? 0 : 1;
    });
  },
};

/** As long as the brokers keep records, or they could not be published again. For how long is not guessed. */
function retentionIn(call: Call): () => Promise<PruneOptions['retention']> {
  const hours = call.number('retention-hours', { min: 0, max: longestRetentionMs / hourMs, whole: false });
  const topics = call.text('topics');
  if (hours !== undefined && topics !== undefined) throw new WrongCall('--retention-hours or --topics, not both');
  if (hours !== undefined) return async () => hours * hourMs;
  const bootstrap = call.text('brokers');
  if (!bootstrap) {
    const needed = '--brokers is needed, or KAFKA_BROKERS, to ask how long records are kept';
    throw new WrongCall(`${needed}; or --retention-hours`);
  }
  const ask = async (names: readonly string[]) => askRetention(bootstrap, names);
  if (topics === undefined) return async () => ask;
  const names = topics.split(',').map((name) => name.trim());
  if (names.includes('')) throw new WrongCall(`--topics are names with commas between, not '${topics}'`);
  return async () => {
    const told = await ask(names);
    if (typeof told === 'number') return told;
    throw new WrongCall(told.unknown);
  };
}

async function askRetention(bootstrap: string, topics: readonly string[]): Promise<number | { unknown: string }> {
  const { kafkaSecurity, kafkaTransport } = await import('../transports/kafka.ts');
  const transport = kafkaTransport({ bootstrap, clientId: 'twiceproof-cli', ...kafkaSecurity() });
  try {
    const { retentionMs } = await transport.topicTimes!(topics);
    // Also the greatest number that there is, by which some say so.
    if (retentionMs <= longestRetentionMs) return retentionMs;
    return { unknown: `one of ${topics.join(', ')} keeps records for ever: say --retention-hours` };
  } catch (error) {
    if (!(error instanceof TwiceproofError) || error.code !== 'TP_TOPIC_UNKNOWN') throw error;
    return { unknown: `${error.message}: say --topics, or --retention-hours` };
  } finally {
    await transport.close();
  }
}

function describe({ publishedBelow: below, made, removed, emptied, deleted, left, unknown }: Pruned): string {
  return [
    `All transactions below ${below} are published.`,
    `Partitions removed: ${removed.join(', ') || 'none'}; made: ${made.join(', ') || 'none'}. Rows deleted from the default partition: ${deleted}.`,
    ...emptied.map((name) => `${name} is empty; its table goes the next time.`),
    ...left,
    ...unknown,
  ].join('\n');
}
