/** What a test may have left open, looked for after each one. What is closing is given a moment to close. */
import { afterEach, beforeEach } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import type { KafkaAdmin } from './kafka-admin.ts';

export interface LeakCheck {
  /** Before a test: what is open already does not count. */
  begin?(): void;
  /** What is open now that should not be, in words. */
  find(): Promise<string[]>;
}

const settleMs = 3_000;

export function watchForLeaks(...checks: readonly LeakCheck[]): void {
  beforeEach(() => {
    for (const check of checks) check.begin?.();
  });
  afterEach(async () => {
    const deadline = Date.now() + settleMs;
    for (;;) {
      const found = (await Promise.all(checks.map(async (check) => check.find()))).flat();
      if (found.length === 0) return;
      if (Date.now() > deadline) throw new Error(`the test left behind: ${found.join('; ')}`);
      await delay(50);
    }
  });
}

/** Transactions and replication slots of this database. */
export function databaseLeaks(admin: pg.Client, database: string): LeakCheck {
  return {
    find: async () => {
      const { rows } = await admin.query<{ leak: string }>(
        `SELECT format('backend %s is %s after: %s', pid, state, left(query, 80)) AS leak
           FROM pg_stat_activity WHERE datname = $1 AND state LIKE 'idle in transaction%'
         UNION ALL
         SELECT format('replication slot %s', slot_name) FROM pg_replication_slots WHERE database = $1
         UNION ALL
         SELECT format('prepared transaction %s', gid) FROM pg_prepared_xacts WHERE database = $1`,
        [database],
      );
      return rows.map(({ leak }) => leak);
    },
  };
}

/** Groups that still have members. */
export function kafkaLeaks(admin: KafkaAdmin, prefix: string): LeakCheck {
  return { find: async () => (await admin.liveGroups(prefix)).map((group) => `group ${group} has members`) };
}

/** Sockets, servers and child processes. Timers do not count: node:test has its own, and they come and go. */
const kinds = ['TCPSocketWrap', 'TCPServerWrap', 'PipeWrap', 'PipeServerWrap', 'ProcessWrap'];

export function handleLeaks(): LeakCheck {
  const open = (): number => process.getActiveResourcesInfo().filter((kind) => kinds.includes(kind)).length;
  let before = 0;
  return {
    begin: () => {
      before = open();
    },
    find: async () => {
      const more = open() - before;
      return more > 0 ? [`${more} open handles (${process.getActiveResourcesInfo().join(', ')})`] : [];
    },
  };
}
