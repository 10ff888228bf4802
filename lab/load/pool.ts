/** The connections to one process, and the requests that wait for one. First come, first served. */
import { createConnection, type Connection, type ConnectionOptions } from './connection.ts';
import type { Send } from './plan.ts';
import { createQueue, type Queue } from './queue.ts';

export interface Pool {
  waiting: Queue;
  inFlight: number;
  open(): Promise<void>;
  /** A free connection with the next waiting request as its `current`, if there are both. */
  take(): Connection | undefined;
  /** Gives up what was due before this; what was never sent goes to `onExpired`. */
  expire(dueBeforeMs: number, onExpired: (send: Send) => void): void;
  close(): void;
}

export function createPool(size: number, options: ConnectionOptions): Pool {
  const onDone: ConnectionOptions['onDone'] = (connection, send, reason) => {
    free[(firstFree + size - pool.inFlight) % size] = connection;
    pool.inFlight--;
    options.onDone(connection, send, reason);
  };
  const connections = Array.from({ length: size }, () => createConnection({ ...options, onDone }));
  // In a ring, the longest unused first: each is used often enough not to be closed as idle.
  const free: Connection[] = [...connections];
  let firstFree = 0;

  const pool: Pool = {
    waiting: createQueue(),
    inFlight: 0,
    async open() {
      await Promise.all(connections.map((connection) => connection.open()));
    },
    take() {
      if (pool.inFlight === size) return undefined;
      const send = pool.waiting.shift();
      if (!send) return undefined;
      const connection = free[firstFree]!;
      firstFree = (firstFree + 1) % size;
      pool.inFlight++;
      connection.current = send;
      return connection;
    },
    expire(dueBeforeMs, onExpired) {
      for (const connection of connections) {
        if (connection.current && connection.current.dueMs < dueBeforeMs) connection.abandon('timeout');
      }
      const { waiting } = pool;
      while (waiting.first && waiting.first.dueMs < dueBeforeMs) onExpired(waiting.shift()!);
    },
    close() {
      for (const connection of connections) connection.close();
    },
  };
  return pool;
}

/** One for each url; the connections are divided among them. */
export function createPools(
  { urls, clients }: { urls: readonly string[]; clients: number },
  options: Omit<ConnectionOptions, 'host' | 'port'>,
): Pool[] {
  return urls.map((text, index) => {
    const { hostname, port } = new URL(text);
    const size = Math.floor(clients / urls.length) + (index < clients % urls.length ? 1 : 0);
    return createPool(size, { ...options, host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || 80) });
  });
}
