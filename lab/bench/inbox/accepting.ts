/** Accepts about 1,000 messages a second, in an open model, and says how long each call took. */
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { acceptText, consumer, newIds, type Range } from './statement.ts';

const batchMessages = 10;
const batchEveryMs = 10;
const connections = 4;
const lookEveryMs = 20;
const waitingText = `SELECT FROM pg_stat_activity WHERE application_name = 'bench-accepting' AND wait_event_type = 'Lock'
  AND datname = current_database()`;

export interface Accepted {
  /** When it was due, by `performance.now()`. */
  atMs: number;
  /** Until the statement was answered, without the COMMIT, which waits for the disk. */
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
  await Promise.all(clients.map(async (client) => client.connect()));
  const { rows } = await clients[0]!.query<{ msg_id: string }>(
    `SELECT msg_id FROM twiceproof."inbox_${oldDay.fromMs}_${oldDay.toMs}" LIMIT 1000`,
  );
  const accepts: Accepted[] = [];
  let refused = 0;
  let stopped = false;
  let next = 0;
  const startedAt = performance.now();
  const watcher = new pg.Client({ connectionString: url, application_name: 'bench-watching' });
  await watcher.connect();
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

  async function accept(client: pg.Client, n: number): Promise<void> {
    const dueAt = startedAt + n * batchEveryMs;
    const waitMs = dueAt - performance.now();
    if (waitMs > 0) await delay(waitMs);
    if (stopped) return;
    const sentAt = performance.now();
    const old = rows[n % Math.max(1, rows.length)]?.msg_id;
    const ids = [...newIds(batchMessages - (old === undefined ? 0 : 1), 7), ...(old === undefined ? [] : [old])];
    for (;;) {
      try {
        await client.query('BEGIN');
        await client.query(acceptText, [consumer, ids, ids.map(() => '1')]);
        accepts.push({ atMs: sentAt, ms: performance.now() - sentAt, messages: ids.length });
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

  const running = Promise.all([
    ...clients.map(async (client) => {
      while (!stopped) await accept(client, next++);
    }),
    watch(),
  ]);
  running.catch(() => {}); // Whoever stops it hears of it.
  return {
    refused: () => refused,
    countLockWaits: () => {
      lockWaits = 0;
    },
    lockWaits: () => lockWaits,
    untilSeen: async (calls) => {
      const wanted = accepts.length + calls;
      while (accepts.length < wanted) await Promise.race([delay(5), running]);
    },
    stop: async () => {
      stopped = true;
      await running;
      await Promise.all(clients.map(async (client) => client.end()));
      return accepts;
    },
  };
}
