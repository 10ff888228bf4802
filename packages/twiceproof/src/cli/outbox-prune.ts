import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from '../connection.ts';
import {
  addPartition,
  deleteFromDefault,
  dropPartition,
  emptyPartition,
  publishedBelow,
  rangesAhead,
  readPartitions,
} from '../outbox/retention.ts';
import { transaction } from '../transaction.ts';
import type { Tx } from '../tx.ts';
import { WrongCall, type Call, type Command } from './call.ts';
import { isLockTimeout, onDatabase, reading } from './database.ts';

export interface PruneOptions {
  schema?: string | undefined;
  retentionMs: number;
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
}

const defaultAttempts = 20;
const pauseMs = 250;
/** At some 25 rows in a block about 1,000 rows in a transaction. */
const blocksAtOnce = 40;

export async function prune(pool: Pool, options: PruneOptions): Promise<Pruned> {
  const { schema } = options;
  const below = await reading(pool, (tx) => publishedBelow(tx, schema));
  const done: Pruned = { publishedBelow: String(below), made: [], removed: [], emptied: [], deleted: 0, left: [] };
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
      return await transaction(pool, work, { localSettings });
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
  const { schema, retentionMs } = options;
  const { ranges } = await reading(pool, (tx) => readPartitions(tx, schema));
  for (const partition of ranges) {
    options.onProgress?.(`looking at ${partition.name} ...`);
    const emptied = await inShortAttempts(pool, options, (tx) =>
      emptyPartition(tx, partition, { retentionMs, schema }),
    );
    if (emptied === 'busy') done.left.push(`${partition.name} was not emptied: it is being read`);
    if (emptied !== 'emptied') return;
    const dropped = await inShortAttempts(pool, options, async (tx) => {
      await dropPartition(tx, partition);
      return 'dropped' as const;
    });
    (dropped === 'busy' ? done.emptied : done.removed).push(partition.name);
  }
}

/** As much time between as within, so that others have their half of the disk. */
async function pruneDefault(pool: Pool, options: PruneOptions, done: Pruned): Promise<void> {
  const { schema, retentionMs } = options;
  for (let from = 0, blocks = 1; from < blocks; from += blocksAtOnce) {
    const began = performance.now();
    const { count, blocksInTable } = await transaction(pool, (tx) =>
      deleteFromDefault(tx, { blocks: { from, to: from + blocksAtOnce }, retentionMs, schema }),
    );
    done.deleted += count;
    blocks = blocksInTable;
    options.onProgress?.(`${done.deleted} rows deleted; block ${from} of ${blocks} of the default partition ...`);
    if (count > 0) await delay(performance.now() - began);
  }
}

export const pruneCommand: Command = {
  summary: 'remove what is published and older than the retention; make partitions ahead',
  flags: ['schema', 'retention-hours', 'topics', 'brokers', 'partition-xids', 'max-wait-ms'],
  about:
    'Run it every hour. Only what every shard has published goes, never by date alone; the role must own the tables.\nKeep rows for as long as the topics keep records (--topics asks the brokers), to be able to publish them again.',
  async run(call) {
    const retentionMs = await retentionOf(call);
    const step = call.number('partition-xids', { min: 1, max: Number.MAX_SAFE_INTEGER }) ?? 10_000_000;
    const maxWaitMs = call.number('max-wait-ms', { min: 1, max: 3_600_000 }) ?? 500;
    return onDatabase(async (pool) => {
      const pruned = await prune(pool, {
        schema: call.schema,
        retentionMs,
        stepXids: BigInt(step),
        maxWaitMs,
        onProgress: call.progress,
      });
      call.answer(pruned, describe(pruned));
      return 0;
    });
  },
};

const hourMs = 3_600_000;

/** As long as the brokers keep records, or they could not be published again. For how long is not guessed. */
async function retentionOf(call: Call): Promise<number> {
  const hours = call.number('retention-hours', { min: 0, max: 1_000_000, whole: false });
  const topics = call.text('topics');
  if (hours !== undefined && topics !== undefined) throw new WrongCall('--retention-hours or --topics, not both');
  if (hours !== undefined) return hours * hourMs;
  if (topics === undefined) throw new WrongCall('say --topics (rows stay as long as its records) or --retention-hours');
  const { kafkaSecurity, kafkaTransport } = await import('../transports/kafka.ts');
  const bootstrap = call.required('brokers');
  const transport = kafkaTransport({ bootstrap, clientId: 'twiceproof-cli', ...kafkaSecurity() });
  try {
    const { retentionMs } = await transport.topicTimes!(topics.split(',').map((name) => name.trim()));
    if (retentionMs === Infinity) throw new WrongCall('a topic keeps records for ever: say --retention-hours');
    return retentionMs;
  } finally {
    await transport.close();
  }
}

function describe({ publishedBelow: below, made, removed, emptied, deleted, left }: Pruned): string {
  return [
    `All transactions below ${below} are published.`,
    `Partitions removed: ${removed.join(', ') || 'none'}; made: ${made.join(', ') || 'none'}. Rows deleted from the default partition: ${deleted}.`,
    ...emptied.map((name) => `${name} is empty; its table goes the next time.`),
    ...left,
  ].join('\n');
}
