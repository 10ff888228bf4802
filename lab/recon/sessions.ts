import { endsWithin } from '@twiceproof/program/ends-within';
import pg from 'pg';

export interface Sessions {
  /** In the orders database. It holds the temporary tables, and writes nothing else. */
  judge: pg.Client;
  /** Read only. */
  payments: pg.Client;
  close(): Promise<void>;
}

export interface SessionOptions {
  databaseUrl: string;
  paymentsUrl: string;
  /** Cuts all of them off. */
  signal: AbortSignal;
}

const connectWithinMs = 10_000;
const endWithinMs = 1_000;

export async function openSessions({ databaseUrl, paymentsUrl, signal }: SessionOptions): Promise<Sessions> {
  const clients = [databaseUrl, paymentsUrl].map(
    (connectionString) =>
      new pg.Client({
        connectionString,
        application_name: 'recon',
        connectionTimeoutMillis: connectWithinMs,
        keepAlive: true,
      }),
  );
  const cutOff = (): void => {
    for (const client of clients) socketOf(client).destroy();
  };
  const close = async (): Promise<void> => {
    signal.removeEventListener('abort', cutOff);
    await Promise.all(
      clients.map(async (client) => {
        // A COPY that nobody reads any more would never let its connection end.
        if (!(await endsWithin(endWithinMs, client.end()).catch(() => false))) socketOf(client).destroy();
      }),
    );
  };
  // The statement under way fails too, and that is where it is told.
  for (const client of clients) client.on('error', () => {});
  try {
    for (const client of clients) await client.connect();
  } catch (error) {
    await close();
    throw error;
  }
  signal.addEventListener('abort', cutOff);
  const [judge, payments] = clients as [pg.Client, pg.Client];
  return { judge, payments, close };
}

function socketOf(client: pg.Client): pg.Connection['stream'] {
  return (client as pg.Client & { connection: pg.Connection }).connection.stream;
}
