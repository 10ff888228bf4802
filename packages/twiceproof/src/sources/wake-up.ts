import { setTimeout as delay } from 'node:timers/promises';
import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';

/** For those to whom the poll interval is too long. Polling stays: a wake-up that is lost costs that interval, and no more. */
export interface WakeUps {
  /** Resolves at the next wake-up, after `ms`, or when the signal is aborted. Answers whether it was a wake-up. */
  wait(ms: number, signal: AbortSignal): Promise<boolean>;
  close(): Promise<void>;
}

export interface WakeUpSender {
  /** Call it after a COMMIT that has appended messages; it neither waits nor fails. */
  wake(): void;
}

/** The channel is named as the schema is. */
const channelOf = quotedSchema;

/**
 * In a transaction of its own, and at most once in `everyMs`: NOTIFY takes a lock that all committing writers share, and in
 * each writer's transaction it halves how many can commit.
 */
export function createWakeUpSender(options: { pool: Tx; schema?: string; everyMs?: number }): WakeUpSender {
  const { pool, schema, everyMs = 5 } = options;
  const text = `NOTIFY ${channelOf(schema)}`;
  let isWaiting = false;
  let lastAt = -Infinity;

  async function send(): Promise<void> {
    await delay(Math.max(0, lastAt + everyMs - performance.now()));
    isWaiting = false;
    lastAt = performance.now();
    await pool.query(text);
  }

  return {
    wake: () => {
      if (isWaiting) return;
      isWaiting = true;
      // The next poll finds what this one could not tell.
      send().catch(() => {});
    },
  };
}

/** What we need of a `pg` client that is connected and used for nothing else. A pooler in transaction mode cannot LISTEN. */
export interface ListeningClient extends Tx {
  on(event: 'notification' | 'error' | 'end', listener: () => void): unknown;
  end(): Promise<void>;
}

/** `connect` is called again, after a pause, when the connection is lost. */
export function listenForWakeUps(options: { connect(): Promise<ListeningClient>; schema?: string }): WakeUps {
  const stopping = new AbortController();
  /** Each is taken out again by whoever waits: on an idle outbox nobody is woken for hours, and many waits go by. */
  const waiting = new Set<(isWoken: boolean) => void>();
  /** One came while nobody was waiting. */
  let isMissed = false;

  async function listen(): Promise<void> {
    while (!stopping.signal.aborted) {
      const client = await options.connect().catch(() => undefined);
      if (client) await untilLost(client).catch(() => {});
      await delay(1_000 * (0.5 + Math.random()), undefined, { signal: stopping.signal }).catch(() => {});
    }
  }

  async function untilLost(client: ListeningClient): Promise<void> {
    const lost = Promise.withResolvers<void>();
    client.on('error', lost.resolve);
    client.on('end', lost.resolve);
    stopping.signal.addEventListener('abort', () => lost.resolve(), { once: true });
    client.on('notification', () => {
      isMissed = true;
      for (const end of waiting) end(true);
    });
    try {
      await client.query(`LISTEN ${channelOf(options.schema)}`);
      if (!stopping.signal.aborted) await lost.promise;
    } finally {
      await client.end();
    }
  }

  const listening = listen();
  return {
    wait: async (ms, signal) => {
      const { promise, resolve } = Promise.withResolvers<boolean>();
      const end = (): void => resolve(false);
      const timer = setTimeout(end, ms);
      signal.addEventListener('abort', end);
      waiting.add(resolve);
      const isWoken = isMissed || (!signal.aborted && (await promise));
      waiting.delete(resolve);
      signal.removeEventListener('abort', end);
      clearTimeout(timer);
      isMissed = false;
      return isWoken;
    },
    close: async () => {
      stopping.abort();
      await listening;
    },
  };
}
