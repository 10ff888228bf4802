/** One real process under supervision: its signals, its end, and the last of what it printed. */
import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { defaultTimeoutMs, within } from './deadline.ts';

export interface ProgramCall {
  /** What the process is in this lab, such as `orders-1`. One process at a time bears a role; a successor may. */
  role: string;
  /** The program itself, not a shell or npm around it: signals go to this one process. */
  command: string;
  args?: readonly string[];
  /** Besides our own environment. */
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** Gets what it prints on either stream, and is added to. Defaults to none: only the end is kept. */
  logFile?: string;
}

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

export interface Supervised {
  readonly role: string;
  readonly pid: number;
  readonly running: boolean;
  /** When it has ended and all that it printed has been read. */
  readonly exited: Promise<Exit>;
  /** What the program printed first under --json, which says that it is ready, and where. */
  firstJsonLine<T = Record<string, unknown>>(timeoutMs?: number): Promise<T>;
  /** When this stands in what it printed, on either stream. */
  printed(pattern: RegExp, timeoutMs?: number): Promise<void>;
  signal(signal: NodeJS.Signals): void;
  /** SIGKILL; answers when it is dead. */
  kill(): Promise<Exit>;
  /** SIGSTOP. */
  freeze(): void;
  /** SIGCONT; it also leaves the point where it was told to stop. */
  thaw(): void;
  /** How it is and the end of what it printed, for the message of an error. */
  describe(): string;
}

/** What the supervisor alone may do. */
export interface SupervisedProcess extends Supervised {
  /** Freezes it at a point that waits for `answer`; the answer is given when it is thawed, never before. */
  freezeAt(answer: () => void): void;
}

const tailChars = 8_192;
const firstLineMaxChars = 65_536;

export async function startProcess(call: ProgramCall, socketPath: string): Promise<SupervisedProcess> {
  const child = spawn(call.command, call.args ?? [], {
    // Out of the terminal's process group: on Ctrl-C the owner of the lab decides in which order to stop.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...call.env, TWICEPROOF_POINTS: socketPath },
    ...(call.cwd && { cwd: call.cwd }),
  });
  const exited = new Promise<Exit>((resolve) => {
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
  if (call.logFile !== undefined) copyTo(call.logFile, child);
  const firstLine = firstLineOf(child.stdout);
  const stdout = tailOf(child.stdout);
  const stderr = tailOf(child.stderr);
  await once(child, 'spawn');

  const isRunning = (): boolean => child.exitCode === null && child.signalCode === null;
  const describe = (): string => {
    const state = isRunning() ? 'runs' : `has ended (${child.signalCode ?? `exit code ${child.exitCode}`})`;
    return `${call.role} (process ${child.pid}) ${state}\n--- stderr\n${stderr()}\n--- stdout\n${stdout()}`;
  };
  const signal = (name: NodeJS.Signals): void => {
    child.kill(name); // Nothing happens to a process that has ended: Node knows whether it has.
  };
  const waitForThaw: (() => void)[] = [];
  return {
    role: call.role,
    pid: child.pid as number,
    get running() {
      return isRunning();
    },
    exited,
    firstJsonLine: async <T>(timeoutMs = defaultTimeoutMs) => {
      const ended = exited.then(() => undefined);
      const line = await within(timeoutMs, Promise.race([firstLine, ended]), () => `no line came from ${describe()}`);
      if (line === undefined) throw new Error(`it ended before its first line: ${describe()}`);
      return JSON.parse(line) as T;
    },
    printed: async (pattern, timeoutMs = defaultTimeoutMs) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      const look = (): void => {
        if (pattern.test(stderr()) || pattern.test(stdout())) resolve();
      };
      look();
      for (const stream of [child.stdout, child.stderr]) stream.on('data', look);
      try {
        await within(timeoutMs, promise, () => `${String(pattern)} did not come from ${describe()}`);
      } finally {
        for (const stream of [child.stdout, child.stderr]) stream.off('data', look);
      }
    },
    signal,
    kill: async () => {
      signal('SIGKILL');
      return exited;
    },
    freeze: () => signal('SIGSTOP'),
    freezeAt: (answer) => {
      waitForThaw.push(answer);
      signal('SIGSTOP');
    },
    thaw: () => {
      signal('SIGCONT');
      for (const answer of waitForThaw.splice(0)) answer();
    },
    describe,
  };
}

function copyTo(file: string, child: ChildProcessByStdio<null, Readable, Readable>): void {
  const log = createWriteStream(file, { flags: 'a' });
  for (const stream of [child.stdout, child.stderr]) stream.pipe(log, { end: false });
  child.once('close', () => log.end());
}

/** Reads on to the end, so that the program never waits for a reader, and keeps the last of it. */
function tailOf(stream: Readable): () => string {
  let tail = '';
  stream.setEncoding('utf8').on('data', (text: string) => {
    tail = (tail + text).slice(-tailChars);
  });
  return () => tail.trimEnd();
}

/** Never settles when no line comes: the end of the process tells that. */
async function firstLineOf(stream: Readable): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  let text = '';
  const read = (more: string): void => {
    text += more;
    const end = text.indexOf('\n');
    if (end < 0 && text.length < firstLineMaxChars) return;
    stream.off('data', read);
    resolve(end < 0 ? text : text.slice(0, end));
  };
  stream.setEncoding('utf8').on('data', read);
  return promise;
}
