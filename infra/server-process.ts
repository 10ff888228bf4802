/** One server process: its log goes to a file, and starting, stopping, killing and freezing it are calls. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { EXIT, Refusal } from '@twiceproof/program';

export interface ServerCommand {
  name: string;
  command: string;
  args: readonly string[];
  logFile: string;
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** Run it as this user and group. */
  uid?: number;
}

export interface ServerProcess {
  readonly pid: number;
  readonly running: boolean;
  signal(signal: NodeJS.Signals): void;
  /** Sends the signal and waits for the end; after the time limit SIGKILL follows. */
  end(signal: NodeJS.Signals, timeoutMs: number): Promise<void>;
}

export async function startServer(server: ServerCommand): Promise<ServerProcess> {
  const log = openSync(server.logFile, 'a');
  let child: ChildProcess;
  try {
    child = spawn(server.command, server.args, {
      // Out of the terminal's process group: on Ctrl-C the owner decides in which order to stop.
      detached: true,
      stdio: ['ignore', log, log],
      ...(server.env && { env: server.env }),
      ...(server.cwd && { cwd: server.cwd }),
      ...(server.uid !== undefined && { uid: server.uid, gid: server.uid }),
    });
    await once(child, 'spawn');
  } finally {
    closeSync(log);
  }
  const exited = once(child, 'exit');
  const isRunning = (): boolean => child.exitCode === null && child.signalCode === null;
  return {
    pid: child.pid as number,
    get running() {
      return isRunning();
    },
    signal: (signal) => {
      child.kill(signal);
    },
    end: async (signal, timeoutMs) => {
      if (!isRunning()) return;
      child.kill(signal);
      const late = setTimeout(() => child.kill('SIGKILL'), timeoutMs);
      await exited;
      clearTimeout(late);
    },
  };
}

/** Waits until `isReady` answers true. A server that ends before, or takes too long, shows the end of its log. */
export async function waitUntilReady(
  server: ServerProcess,
  about: {
    name: string;
    logFile: string;
    timeoutMs: number;
    todo: string;
    signal?: AbortSignal | undefined;
    endBy?: NodeJS.Signals;
  },
  isReady: () => Promise<boolean>,
): Promise<void> {
  const deadline = Date.now() + about.timeoutMs;
  while (!(await isReady())) {
    if (about.signal?.aborted) {
      await server.end(about.endBy ?? 'SIGKILL', 2_000);
      throw new Refusal(
        `${about.name} was told to stop while it started.`,
        'Start it again when you need it.',
        EXIT.failed,
      );
    }
    const problem = !server.running
      ? `${about.name} ended while it started.`
      : Date.now() > deadline
        ? `${about.name} did not answer within ${about.timeoutMs / 1000} s.`
        : undefined;
    if (problem) {
      await server.end(about.endBy ?? 'SIGKILL', 2_000);
      throw new Refusal(`${problem} The end of ${about.logFile}:\n${lastLines(about.logFile)}`, about.todo);
    }
    await delay(25);
  }
}

export function lastLines(file: string, count = 12): string {
  if (!existsSync(file)) return '    (no log)';
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n').slice(-count);
  return lines.map((line) => `    ${line}`).join('\n');
}
