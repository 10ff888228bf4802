import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from '../connection.ts';
import { countPending } from '../outbox/pending.ts';
import { changeShards, holdWriters } from '../outbox/reshard.ts';
import { toNumber, type Command } from './call.ts';
import { isLockTimeout, newTransaction, onDatabase, reading } from './database.ts';
import { requireOwnCluster } from './publishing.ts';

export interface ReshardOptions {
  shards: number;
  timeoutMs: number;
  schema?: string | undefined;
  onProgress?(text: string): void;
}

export type Resharded =
  | { outcome: 'changed'; shards: number }
  /** Nothing was changed. */
  | { outcome: 'not drained'; pending: number }
  | { outcome: 'writers did not end' };

/** Writers are held only when so few are left that relays need a moment for them. */
const fewPending = 1_000;
/** Then they may go on, and it is tried again. */
const holdAtMostMs = 10_000;
/** For the lock, behind which writers queue while it is waited for. */
const lockAttemptMs = 500;
const lookEveryMs = 20;
const countUpTo = 1_000_000;

/** Waits until all is published, first while writers go on, then while they are held, and changes the count of shards. */
export async function reshard(pool: Pool, options: ReshardOptions): Promise<Resharded> {
  const { shards, schema, timeoutMs, onProgress } = options;
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const pending = await reading(pool, (tx) => countPending(tx, countUpTo, schema));
    if (pending <= fewPending) break;
    if (performance.now() > deadline) return { outcome: 'not drained', pending };
    onProgress?.(`${pending} messages are to be published first ...`);
    await delay(10 * lookEveryMs);
  }
  let last: Resharded = { outcome: 'writers did not end' };
  while (performance.now() < deadline) {
    const result = await tryWhileHeld(pool, options, Math.min(deadline, performance.now() + holdAtMostMs));
    if (result === 'changed') return { outcome: 'changed', shards };
    last = result === 'busy' ? { outcome: 'writers did not end' } : { outcome: 'not drained', pending: result.pending };
    onProgress?.(
      result === 'busy'
        ? 'waiting for transactions that have appended, and for relays, to end ...'
        : 'trying again ...',
    );
    await delay(lockAttemptMs * (0.5 + Math.random()));
  }
  return last;
}

async function tryWhileHeld(
  pool: Pool,
  { shards, schema, onProgress }: ReshardOptions,
  deadline: number,
): Promise<'changed' | 'busy' | { pending: number }> {
  const settings = { lock_timeout: `${lockAttemptMs}`, idle_in_transaction_session_timeout: '0' };
  try {
    return await newTransaction(pool, settings, async (tx) => {
      await holdWriters(tx, schema);
      for (;;) {
        const pending = await countPending(tx, countUpTo, schema);
        if (pending === 0) return (await changeShards(tx, shards, schema)) === 'changed' ? 'changed' : { pending: 1 };
        if (performance.now() > deadline) return { pending };
        onProgress?.(`${pending} messages are to be published; writers wait ...`);
        await delay(lookEveryMs);
      }
    });
  } catch (error) {
    if (isLockTimeout(error)) return 'busy';
    throw error;
  }
}

export const reshardCommand: Command = {
  summary: 'change into how many shards the outbox is divided, when all is published',
  word: 'N',
  flags: ['schema', 'timeout-seconds'],
  about:
    'Relays must run: it waits until they have published everything, and keeps writers waiting for the last moments of\nthat. If it takes longer than the time-out nothing is changed. The role must own the tables.',
  async run(call) {
    const shards = toNumber('the count of shards', call.word, { min: 1, max: 1024 })!;
    const timeoutMs = 1_000 * (call.number('timeout-seconds', { min: 1, max: 86_400 }) ?? 60);
    return onDatabase(async (pool) => {
      await requireOwnCluster(pool, call.schema);
      const result = await reshard(pool, { shards, timeoutMs, schema: call.schema, onProgress: call.progress });
      if (result.outcome === 'changed') {
        call.answer(result, `The outbox is divided into ${shards} shards now.`);
        return 0;
      }
      const why =
        result.outcome === 'not drained'
          ? `${result.pending} messages were not published in time: do relays run?`
          : 'some transaction that has appended did not end in time.';
      call.answer(result, `Nothing was changed: ${why}`);
      return 1;
    });
  },
};
