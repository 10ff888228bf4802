/** What a test may have left open, looked for at the end of each. What is closing is given a moment to close. */
import { beforeEach, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type pg from 'pg';
import type { KafkaAdmin } from './kafka-admin.ts';

export interface LeakCheck {
  /** Before a test: what is open already does not count. */
  begin?(): Promise<void>;
  /** What is open now that should not be, in words. */
  find(): Promise<string[]>;
}

const settleMs = 3_000;

export function watchForLeaks(check: LeakCheck): void {
  beforeEach(async (context) => {
    await check.begin?.();
    const test = context as TestContext;
    // Hooks run in the order in which they were added, and a hook may add another: so this one comes
    // behind all that the test adds for its own cleaning up. (`afterEach` would come before them.)
    test.after(() => test.after(async () => demandNothing(check)));
  });
}

async function demandNothing(check: LeakCheck): Promise<void> {
  const deadline = Date.now() + settleMs;
  for (;;) {
    const found = await check.find();
    if (found.length === 0) return;
    if (Date.now() > deadline) throw new Error(`the test left behind: ${found.join('; ')}`);
    await delay(50);
  }
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
/** How many of the sockets with these local ports are a pool's, which may keep them from one test to the next. */
type Explain = (ports: readonly number[]) => Promise<number>;
const explanations: Explain[] = [];

export function explainHandles(count: Explain): void {
  explanations.push(count);
}

/** Of the sockets that are open now. */
function localPorts(): number[] {
  const { _getActiveHandles: handles } = process as unknown as { _getActiveHandles(): { localPort?: number }[] };
  return handles.call(process).flatMap(({ localPort }) => localPort ?? []);
}

export function handleLeaks(): LeakCheck {
  const unexplained = async (): Promise<number> => {
    // At one moment: a pool closes what was idle for long whenever it likes, and what is gone must not be explained.
    const open = process.getActiveResourcesInfo().filter((kind) => kinds.includes(kind));
    const ports = localPorts();
    const explained = await Promise.all(explanations.map(async (count) => count(ports)));
    return explained.reduce((left, count) => left - count, open.length);
  };
  let before = 0;
  return {
    begin: async () => {
      before = await unexplained();
    },
    find: async () => {
      const more = (await unexplained()) - before;
      return more > 0 ? [`${more} open handles (${process.getActiveResourcesInfo().join(', ')})`] : [];
    },
  };
}

/** The open handles of a file are watched once, whatever it uses. */
let watchesHandles = false;

export function watchHandles(): void {
  if (!watchesHandles) watchForLeaks(handleLeaks());
  watchesHandles = true;
}

/**
 * Connections of this process to a database: a pool's. Not those of programs that it has started, which come and go by
 * themselves: the server may still count one when a test begins whose client has ended with the test before.
 */
export async function countOwnConnections(
  admin: pg.Client,
  database: string,
  ports: readonly number[],
): Promise<number> {
  const { rows } = await admin.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM pg_stat_activity WHERE datname = $1 AND client_port = ANY ($2)',
    [database, [...ports]],
  );
  return rows[0]?.count ?? 0;
}

/** Of whatever process. */
export async function countConnections(admin: pg.Client, database: string): Promise<number> {
  const { rows } = await admin.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'",
    [database],
  );
  return rows[0]?.count ?? 0;
}
