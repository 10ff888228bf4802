/** The programs under test and what loads them, each a process of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Second } from '../load/meter.ts';
import type { LoadResult } from '../load/result.ts';
import { nodeFlags } from '../shared/node-flags.ts';

const root = join(import.meta.dirname, '../..');
const stderrChars = 4_096;

export interface Child {
  pid: number;
  /** SIGTERM; answers when it has ended. */
  stop(): Promise<void>;
  /** When it has ended, and all that it printed has been read. */
  ended: Promise<number | null>;
  /** The end of what it said to people. */
  said(): string;
}

export function startProgram(
  script: string,
  args: readonly string[],
  options: { env?: NodeJS.ProcessEnv; onLine(line: Record<string, unknown>): void },
): Child {
  const child = spawn(process.execPath, [...nodeFlags, join(root, script), '--json', ...args], {
    cwd: root,
    env: { ...ownEnvironment(), ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
    // A session of its own, as a service has. Most kernels share out the cores among sessions first (autogroup), and each
    // connection of Postgres and each broker is one: all of ours in a single one would get as much as one of them.
    detached: true,
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-stderrChars);
  });
  createInterface({ input: child.stdout }).on('line', (text) => {
    options.onLine(JSON.parse(text) as Record<string, unknown>);
  });
  const ended = once(child, 'close').then(([code]) => code as number | null);
  return {
    pid: child.pid!,
    ended,
    said: () => said.trimEnd(),
    stop: async () => {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

/**
 * Our flags may have come as variables that theirs would be read from too, and points that somebody has armed would
 * wait at each request. A program that believes that npm has started it ends when its parent is gone.
 */
function ownEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('TWICEPROOF_'));
  return { ...Object.fromEntries(kept), npm_lifecycle_event: 'bench' };
}

export interface Orders {
  pid: number;
  url: string;
  /** Where its metrics are. */
  admin: string;
  stop(): Promise<void>;
}

export async function startOrders(databaseUrl: string, args: readonly string[]): Promise<Orders> {
  const { child, ready } = await startServing(
    'apps/orders/main.ts',
    ['--port=0', '--grpc-port=0', '--admin-port=0', '--grace-ms=2000', ...args],
    { env: { DATABASE_URL: databaseUrl } },
  );
  return { pid: child.pid, url: String(ready['http']), admin: String(ready['admin']), stop: child.stop };
}

/** A program that has said that it is ready; what it says later is for `onLine`. */
export async function startServing(
  script: string,
  args: readonly string[],
  { env, onLine }: { env: NodeJS.ProcessEnv; onLine?(line: Record<string, unknown>): void },
): Promise<{ child: Child; ready: Record<string, unknown> }> {
  const ready = Promise.withResolvers<Record<string, unknown>>();
  const child = startProgram(script, args, {
    env,
    onLine: (line) => (line['ready'] === true ? ready.resolve(line) : onLine?.(line)),
  });
  // An error that it prints as a line is no address; its end says so.
  const failed = child.ended.then((code): never => {
    throw new Error(`${script} ended with ${code} before it was ready: ${child.said()}`);
  });
  failed.catch(() => {});
  return { child, ready: await Promise.race([ready.promise, failed]) };
}

/** A program that ends by itself. */
export async function runProgram(script: string, args: readonly string[], env: NodeJS.ProcessEnv): Promise<void> {
  const child = startProgram(script, args, { env, onLine() {} });
  const code = await child.ended;
  if (code !== 0) throw new Error(`${script} ended with ${code}: ${child.said()}`);
}

export interface LoadCall {
  urls: readonly string[];
  rate: number;
  warmupS: number;
  /** After the warm-up. One second more is sent, so that the last one of these is a whole one. */
  measuredS: number;
  seed: number;
  /** Further flags of `npm run load`. */
  args: readonly string[];
  signal: AbortSignal;
  /** After each second of the run; the pid is the generator's. */
  onSecond(second: number, pid: number): void;
}

export async function runLoad(call: LoadCall): Promise<LoadResult> {
  const { urls, rate, warmupS, measuredS, seed, args, signal, onSecond } = call;
  let result: LoadResult | undefined;
  const child = startProgram(
    'lab/load/main.ts',
    [
      `--url=${urls.join(',')}`,
      `--rate=${rate}`,
      `--seed=${seed}`,
      '--spacing=poisson',
      `--warmup=${warmupS}`,
      `--duration=${warmupS + measuredS + 1}`,
      ...args,
    ],
    {
      onLine: (line) => {
        if ('second' in line) onSecond((line as unknown as Second).second, child.pid);
        if ('result' in line) result = line['result'] as LoadResult;
      },
    },
  );
  const stop = (): void => {
    child.stop().catch(() => {});
  };
  signal.addEventListener('abort', stop);
  try {
    const code = await child.ended;
    signal.throwIfAborted();
    // Its exit code also judges what was dropped and differed, which is ours to judge.
    if (!result) throw new Error(`load ended with ${code}: ${child.said()}`);
    return result;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
