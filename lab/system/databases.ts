/** A database for orders and their outbox, and one for payments: what lies between them is Kafka alone. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import pg from 'pg';
import { root } from './environment.ts';

export interface DatabaseUrls {
  orders: string;
  payments: string;
}

/** Two relays publish at once only if each finds a shard. */
const shards = 2;
const execute = promisify(execFile);

/** What is there already is used as it is. The tables are made by the programs; the relay alone expects to find its own. */
export async function makeDatabases(serverUrl: string): Promise<DatabaseUrls> {
  const client = new pg.Client(serverUrl);
  await client.connect();
  try {
    const { rows } = await client.query<{ datname: string }>('SELECT datname FROM pg_database');
    for (const name of ['orders', 'payments']) {
      if (!rows.some(({ datname }) => datname === name)) await client.query(`CREATE DATABASE ${name}`);
    }
  } finally {
    await client.end();
  }
  const urls = { orders: onServer(serverUrl, 'orders'), payments: onServer(serverUrl, 'payments') };
  const cli = ['--conditions=twiceproof-source', 'packages/twiceproof/src/cli/main.ts'];
  await execute(process.execPath, [...cli, 'migrate', `--shards=${shards}`], {
    cwd: root,
    env: { ...process.env, DATABASE_URL: urls.orders },
  });
  return urls;
}

export function onServer(serverUrl: string, database: string, host?: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  if (host !== undefined) url.host = host;
  return url.href;
}
