/** `twiceproof outbox ...`: looking after the log and its relay. docs/operations.md tells when to use which. */
import { pendingShards } from '../outbox/pending.ts';
import { countParked } from '../sources/parked.ts';
import type { Command } from './call.ts';
import { onDatabase, reading } from './database.ts';
import { dropCommand, parkedCommand, releaseCommand } from './outbox-parked.ts';
import { pruneCommand } from './outbox-prune.ts';
import { repairCommand } from './outbox-repair.ts';
import { republishCommand } from './outbox-republish.ts';
import { reshardCommand } from './outbox-reshard.ts';

/** Counting further takes long, and says no more. */
const countUpTo = 10_000_000;

const pendingCommand: Command = {
  summary: 'how many messages are not yet published, by shard, and since when',
  flags: ['schema'],
  async run(call) {
    return onDatabase(async (pool) => {
      const { shards, parked } = await reading(pool, async (tx) => ({
        shards: await pendingShards(tx, countUpTo, call.schema),
        parked: await countParked(tx, call.schema),
      }));
      const pending = shards.reduce((sum, each) => sum + each.pending, 0);
      const lines = shards.map(({ shard, pending: count, oldestSeconds }) => {
        const age = oldestSeconds === undefined ? '' : `, the oldest for ${oldestSeconds.toFixed(1)} s`;
        return `shard ${shard}: ${count}${count >= countUpTo ? ' or more' : ''} pending${age}`;
      });
      call.answer(
        { pending, shards: shards.map((each) => ({ ...each, oldestSeconds: each.oldestSeconds ?? null })), parked },
        [...lines, `parked: ${parked.keys} keys, ${parked.messages} messages`].join('\n'),
      );
      return 0;
    });
  },
};

export const outboxCommands: Readonly<Record<string, Command>> = {
  pending: pendingCommand,
  parked: parkedCommand,
  release: releaseCommand,
  drop: dropCommand,
  prune: pruneCommand,
  republish: republishCommand,
  repair: repairCommand,
  reshard: reshardCommand,
};
