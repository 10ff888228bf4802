/** For the tests here: the real program as a child process, and the events of orders as the relay would publish them. */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import type { OutgoingRecord } from 'twiceproof/transport';
import { kafkaTransport } from 'twiceproof/transports/kafka';
import { uuidv7 } from 'twiceproof/uuid';
import { toRecord } from 'twiceproof/wire';

export interface Servers {
  databaseUrl: string;
  brokers: string;
}

export interface Payments {
  admin: string;
  pid: number;
  horizonMs: number | null;
  ttlMs: number;
  signal(name: NodeJS.Signals): void;
  /** SIGTERM; answers the exit code, once it has ended. */
  stop(): Promise<number | null>;
  exited: Promise<number | null>;
  stderr(): string;
  page(): Promise<string>;
  /** A line of /metrics by all that is before its value; 0 where there is none yet. */
  metric(line: string): Promise<number>;
  /** What /readyz says, with its status. */
  readyz(): Promise<string>;
}

function spawnPayments({ databaseUrl, brokers }: Servers, args: readonly string[], env: NodeJS.ProcessEnv) {
  const child = spawn(
    process.execPath,
    ['--conditions=twiceproof-source', join(import.meta.dirname, 'main.ts'), '--admin-port=0', ...args],
    {
      env: { ...process.env, DATABASE_URL: databaseUrl, KAFKA_BROKERS: brokers, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  const text = { stdout: '', stderr: '' };
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => (text.stderr += chunk));
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text.stdout += chunk));
  const exited = once(child, 'close').then(([code]) => code as number | null);
  return { child, text, exited };
}

/** For calls that come to their end by themselves. */
export async function runPayments(servers: Servers, args: readonly string[] = [], env: NodeJS.ProcessEnv = {}) {
  const { child, text, exited } = spawnPayments(servers, args, env);
  const cutOff = setTimeout(() => child.kill('SIGKILL'), 30_000);
  const code = await exited;
  clearTimeout(cutOff);
  return { code, ...text };
}

/** Whatever comes of the test, the program ends with it. */
export async function startPayments(
  test: { after(end: () => Promise<void>): void },
  servers: Servers,
  args: readonly string[] = [],
  env: NodeJS.ProcessEnv = {},
): Promise<Payments> {
  const { child, text, exited } = spawnPayments(servers, ['--json', ...args], env);
  test.after(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([once(lines, 'line').then(([line]) => String(line)), exited]);
  // The first line says that it is ready, or why it never will be.
  if (typeof first !== 'string' || !first.startsWith('{"ready":true,')) {
    throw new Error(`payments ended with ${await exited}: ${text.stderr}`);
  }
  const said = JSON.parse(first) as Pick<Payments, 'admin' | 'pid' | 'horizonMs' | 'ttlMs'>;
  const page = async (): Promise<string> => (await fetch(`${said.admin}/metrics`)).text();
  return {
    ...said,
    signal: (name) => child.kill(name),
    stop: async () => {
      child.kill('SIGTERM');
      return exited;
    },
    exited,
    stderr: () => text.stderr,
    page,
    metric: async (line) => {
      const found = (await page()).split('\n').find((each) => each.startsWith(`${line} `));
      return Number(found?.slice(line.length) ?? 0);
    },
    readyz: async () => {
      const answer = await fetch(`${said.admin}/readyz`);
      return `${answer.status} ${await answer.text()}`;
    },
  };
}

export async function until(what: string, condition: () => Promise<boolean>, withinMs = 60_000): Promise<void> {
  const deadline = Date.now() + withinMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`in vain: ${what}`);
    await delay(20);
  }
}

const statuses = ['created', 'paid', 'shipped', 'delivered'];

export interface Event {
  orderId?: string;
  version?: number;
  /** The time inside its id. Defaults to now. */
  idTimeMs?: number;
  type?: string;
  payload?: unknown;
}

/** As the relay would publish it: version 1 is a new order. */
export function eventRecord(topic: string, event: Event = {}): OutgoingRecord {
  const { orderId = randomUUID(), version = 1, idTimeMs = Date.now() } = event;
  const status = statuses[version - 1] ?? 'unknown';
  const usual = {
    order_id: orderId,
    ...(version === 1 && { account_id: 7, amount_cents: amountOf(orderId) }),
    status,
    version,
  };
  const { type = version === 1 ? 'order.created' : 'order.status_changed', payload = usual } = event;
  return toRecord(
    {
      topic,
      aggregateId: orderId,
      type,
      payload: Buffer.from(typeof payload === 'string' ? payload : JSON.stringify(payload)),
      id: uuidv7(idTimeMs),
      createdAt: new Date(idTimeMs),
    },
    '/orders',
  );
}

export function amountOf(orderId: string): number {
  return 1 + Number.parseInt(orderId.slice(0, 6), 16);
}

/** So many orders, each with the versions 1 to `versions`: all of version 1 first, and so on. */
export function orderRecords(topic: string, orders: number, versions = 1): OutgoingRecord[] {
  const ids = Array.from({ length: orders }, () => randomUUID());
  return Array.from({ length: versions }, (_, n) =>
    ids.map((orderId) => eventRecord(topic, { orderId, version: n + 1 })),
  ).flat();
}

export async function publish(brokers: string, records: readonly OutgoingRecord[]): Promise<void> {
  const transport = kafkaTransport({ bootstrap: brokers });
  try {
    const outcomes = await transport.publisher().publish(records);
    const failed = outcomes.find(({ outcome }) => outcome !== 'acknowledged');
    if (failed) throw new Error(JSON.stringify(failed));
  } finally {
    await transport.close();
  }
}
