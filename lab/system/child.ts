/** The programs that load and judge, each run to its end. One ends by itself when we are gone, as under npm. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { nodeFlags } from '../shared/node-flags.ts';
import { childEnvironment, root } from './environment.ts';

export interface Child {
  pid: number;
  /** When it has ended and all that it printed has been read. */
  ended: Promise<{ code: number | null; lastLine: Record<string, unknown> | undefined }>;
  stop(): void;
  kill(): void;
  /** The end of what it said to people. */
  said(): string;
}

const saidChars = 4_096;

/** Its first line says that it is ready; `onLine` gets that one and all others. */
export function startChild(
  script: string,
  args: readonly string[],
  onLine: (line: Record<string, unknown>) => void = () => {},
): Child {
  const child = spawn(process.execPath, [...nodeFlags, script, '--json', ...args], {
    cwd: root,
    env: { ...process.env, ...childEnvironment(), npm_lifecycle_event: 'lab' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  let lastLine: Record<string, unknown> | undefined;
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-saidChars);
  });
  createInterface({ input: child.stdout }).on('line', (text) => {
    lastLine = JSON.parse(text) as Record<string, unknown>;
    onLine(lastLine);
  });
  return {
    pid: child.pid!,
    ended: once(child, 'close').then(([code]) => ({ code: code as number | null, lastLine })),
    stop: () => child.kill('SIGTERM'),
    kill: () => child.kill('SIGKILL'),
    said: () => said.trimEnd(),
  };
}
