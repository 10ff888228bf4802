/** For the tests here: the real program as a child process, and what came of it, read back from the topic. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import type { Delivery, Transport } from 'twiceproof/transport';
import { fromDelivery, type ReceivedMessage } from 'twiceproof/wire';

export interface Servers {
  databaseUrl: string;
  brokers: string;
}

export interface Relay {
  admin: string;
  pid: number;
  signal(name: NodeJS.Signals): void;
  /** SIGTERM; answers the exit code, once it has ended. */
  stop(): Promise<number | null>;
  exited: Promise<number | null>;
  stderr(): string;
  /** A line of /metrics by all that is before its value; 0 where there is none yet. */
  metric(line: string): Promise<number>;
  /** What /readyz says, with its status. */
  readyz(): Promise<string>;
}

function spawnRelay({ databaseUrl, brokers }: Servers, args: readonly string[], env: NodeJS.ProcessEnv) {
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
export async function runRelay(servers: Servers, args: readonly string[] = [], env: NodeJS.ProcessEnv = {}) {
  const { child, text, exited } = spawnRelay(servers, args, env);
  const cutOff = setTimeout(() => child.kill('SIGKILL'), 30_000);
  const code = await exited;
  clearTimeout(cutOff);
  return { code, ...text };
}

/** Whatever comes of the test, the program ends with it. */
export async function startRelay(
  test: { after(end: () => Promise<void>): void },
  servers: Servers,
  args: readonly string[] = [],
  env: NodeJS.ProcessEnv = {},
): Promise<Relay> {
  const { child, text, exited } = spawnRelay(servers, ['--json', ...args], env);
  test.after(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([once(lines, 'line').then(([line]) => String(line)), exited]);
  // The first line says that it is ready, or why it never will be.
  if (typeof first !== 'string' || !first.startsWith('{"ready":true,')) {
    throw new Error(`relay ended with ${await exited}: ${text.stderr}`);
  }
  const { admin, pid } = JSON.parse(first) as Pick<Relay, 'admin' | 'pid'>;
  return {
    admin,
    pid,
    signal: (name) => child.kill(name),
    stop: async () => {
      child.kill('SIGTERM');
      return exited;
    },
    exited,
    stderr: () => text.stderr,
    metric: async (line) => {
      const page = await (await fetch(`${admin}/metrics`)).text();
      const found = page.split('\n').find((each) => each.startsWith(`${line} `));
      return Number(found?.slice(line.length) ?? 0);
    },
    readyz: async () => {
      const answer = await fetch(`${admin}/readyz`);
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

/** Everything that is in the topic now, as a consumer reads it. */
export async function readTopic(transport: Transport, group: string, topic: string): Promise<Received[]> {
  let expected = 0;
  const subscription = await transport.subscribe({
    group,
    topics: [topic],
    onAssigned: async (lanes) => {
      expected = lanes.reduce((sum, { earliest, end }) => sum + Number(end - earliest), 0);
      return [];
    },
  });
  const all: Delivery[] = [];
  try {
    while (all.length < expected) {
      const batch = await subscription.receive({ maxRecords: 1_000, waitMs: 10_000 });
      if (!batch) throw new Error(`only ${all.length} of ${expected} records of ${topic} came`);
      all.push(...batch.deliveries);
      await subscription.settle(batch.deliveries);
    }
  } finally {
    await subscription.close();
  }
  return all.map((delivery) => {
    const message = fromDelivery(delivery);
    if ('problem' in message) throw new Error(message.problem);
    return { ...message, text: Buffer.from(message.payload).toString(), delivery };
  });
}

export interface Received extends ReceivedMessage {
  text: string;
  delivery: Delivery;
}

/** The texts of each key, in the order of the topic. */
export function textsByKey(received: readonly Received[]): Record<string, string[]> {
  const byKey: Record<string, string[]> = {};
  for (const { aggregateId, text } of received) (byKey[aggregateId] ??= []).push(text);
  return byKey;
}
