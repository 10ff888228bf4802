/** Accepts 1,000 messages a second, in an open model, and says how late each call was answered. */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { acceptText, consumer, newIds, type Range } from './statement.ts';

const batchMessages = 10;
export const batchEveryMs = 10;
const connections = 4;
const lookEveryMs = 20;
const waitingText = `SELECT FROM pg_stat_activity WHERE application_name = 'bench-accepting' AND wait_event_type = 'Lock'
  AND datname = current_database()`;

export interface Accepted {
  /** When it was due, by `performance.now()`. */
  atMs: number;
  /**
   * From then until the statement was answered, so that what queued behind a slow one is late too. Without its COMMIT, which
   * waits for the disk.
   */
  ms: number;
  messages: number;
}

export interface Accepting {
  /** Of the calls from now on. */
  untilSeen(calls: number): Promise<void>;
  refused(): number;
  /** From now on. */
  countLockWaits(): void;
  lockWaits(): number;
  /** Answers all calls. */
  stop(): Promise<readonly Accepted[]>;
}

/** One message of each batch is of a day that is about to go: an old one that comes again. */
export async function startAccepting(url: string, oldDay: Range): Promise<Accepting> {
  const clients = Array.from(
    { length: connections },
    () => new pg.Client({ connectionString: url, application_name: 'bench-accepting' }),
  );
  const watcher = new pg.Client({ connectionString: url, application_name: 'bench-watching' });
  await Promise.all([...clients, watcher].map(async (client) => client.connect()));
  const { rows } = await clients[0]!.query<{ msg_id: string }>(
    `SELECT msg_id FROM twiceproof."inbox_${oldDay.fromMs}_${oldDay.toMs}" LIMIT 1000`,
  );
  let stopped = false;
  let lockWaits = 0;

  /** A busy machine makes an accept slow too; this tells the one from the other. */
  async function watch(): Promise<void> {
    while (!stopped) {
      const { rowCount } = await watcher.query(waitingText);
      if (rowCount) lockWaits += 1;
      await delay(lookEveryMs);
    }
    await watcher.end();
  }

  const paced = acceptPaced(
    clients,
    rows.map(({ msg_id }) => msg_id),
  );
  const running = Promise.all([paced.running, watch()]);
  running.catch(() => {}); // Whoever stops it hears of it.
  return {
    refused: paced.refused,
    countLockWaits: () => {
      lockWaits = 0;
    },
    lockWaits: () => lockWaits,
    untilSeen: async (calls) => {
      const wanted = paced.accepts.length + calls;
      while (paced.accepts.length < wanted) await Promise.race([delay(5), running]);
    },
    stop: async () => {
      stopped = true;
      paced.stop();
      await running;
      await Promise.all(clients.map(async (client) => client.end()));
      return paced.accepts;
    },
  };
}

/** What is needed of a connection. */
export interface Connection {
  query(text: string, values?: unknown[]): Promise<unknown>;
}

interface Clock {
  now(): number;
  wait(ms: number): Promise<unknown>;
}

interface Paced {
  /** In the order in which they were answered. */
  accepts: readonly Accepted[];
  refused(): number;
  /** No more calls become due; those that are will still be made. */
  stop(): void;
  /** Until all of that is done. */
  running: Promise<unknown>;
}

/** A call is due at its time whether the ones before it were answered or not, and is made when a connection is free. */
export function acceptPaced(
  clients: readonly Connection[],
  oldIds: readonly string[],
  clock: Clock = { now: () => performance.now(), wait: delay },
): Paced {
  const accepts: Accepted[] = [];
  let refused = 0;
  let next = 0;
  const startedAt = clock.now();
  let stopsAt = Infinity;

  async function accept(client: Connection, n: number, dueAt: number): Promise<void> {
    const old = oldIds[n % Math.max(1, oldIds.length)];
    const ids = [...newIds(batchMessages - (old === undefined ? 0 : 1), 7), ...(old === undefined ? [] : [old])];
    for (;;) {
      try {
        await client.query('BEGIN');
        await client.query(acceptText, [consumer, ids, ids.map(() => '1')]);
        accepts.push({ atMs: dueAt, ms: clock.now() - dueAt, messages: ids.length });
        await client.query('COMMIT');
        return;
      } catch (error) {
        // Its partition went between the look at the floor and the insert: it fails, and is done again.
        if ((error as { code?: string }).code !== '23514') throw error;
        refused += 1;
        await client.query('ROLLBACK');
      }
    }
  }

  async function acceptOn(client: Connection): Promise<void> {
    for (;;) {
      const n = next++;
      const dueAt = startedAt + n * batchEveryMs;
      const waitMs = dueAt - clock.now();
      if (waitMs > 0) await clock.wait(waitMs);
      // What was due before the end is made: it may have waited for what is measured.
      if (dueAt > stopsAt) return;
      await accept(client, n, dueAt);
    }
  }

  return {
    accepts,
    refused: () => refused,
    stop: () => {
      stopsAt = Math.min(stopsAt, clock.now());
    },
    running: Promise.all(clients.map(acceptOn)),
  };
}
