import { repair } from '../outbox/repair.ts';
import type { Command } from './call.ts';
import { newTransaction, onDatabase } from './database.ts';

export const repairCommand: Command = {
  summary: 'after a restore: make the cursors and the log belong to this cluster',
  flags: ['schema', 'timeout-seconds'],
  about:
    'For TP_CURSOR_FOREIGN. Stop writers and relays first. What was published according to the restored cursors stays so;\nthe rest is published by the next relay, in order. The role must own the tables.',
  async run(call) {
    const timeoutSeconds = call.number('timeout-seconds', { min: 1, max: 86_400 }) ?? 60;
    return onDatabase(async (pool) => {
      const progress = setInterval(() => call.progress('working; the outbox is locked ...'), 1_000);
      try {
        const settings = { lock_timeout: `${timeoutSeconds * 1_000}`, idle_in_transaction_session_timeout: '0' };
        const repaired = await newTransaction(pool, settings, (tx) => repair(tx, call.schema));
        const text =
          repaired.outcome === 'repaired'
            ? `Repaired. Messages to be published: ${repaired.unpublished}. Start the relays.`
            : 'Nothing to repair: the cursors belong to this cluster.';
        call.answer(repaired, text);
        return 0;
      } finally {
        clearInterval(progress);
      }
    });
  },
};
