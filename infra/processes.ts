/** What runs on this machine, as far as we must know it to end our own servers and nobody else's. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

export interface ProcessInfo {
  pid: number;
  parent: number;
  /** With the pid it names one process for good: pids are given out again, this pair is not. */
  startedAt: string;
  /** The arguments, the program's name first. */
  argv: readonly string[];
}

export function listProcesses(): ProcessInfo[] {
  return existsSync('/proc/self/stat') ? listFromProc() : listFromPs();
}

function listFromProc(): ProcessInfo[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => readProc(Number(name)) ?? []);
}

function readProc(pid: number): ProcessInfo | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the name in parentheses, and may itself hold spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z') return undefined;
    const argv = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(0, -1);
    return { pid, parent: Number(fields[1]), startedAt: fields[19] ?? '', argv };
  } catch {
    return undefined; // It ended while we looked.
  }
}

function listFromPs(): ProcessInfo[] {
  const table = execFileSync('ps', ['-axww', '-o', 'pid=,ppid=,stat=,lstart=,args='], { encoding: 'utf8' });
  return table.split('\n').flatMap((line) => {
    const match = /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(\S+\s+\S+\s+\S+\s+\S+\s+\S+)\s+(.*)$/.exec(line);
    if (!match || match[3]?.startsWith('Z')) return [];
    return [
      { pid: Number(match[1]), parent: Number(match[2]), startedAt: match[4] ?? '', argv: splitArgs(match[5] ?? '') },
    ];
  });
}

/** `ps` gives one text. The program's name may hold spaces, but its arguments begin with a dash. */
function splitArgs(args: string): string[] {
  const [name = '', ...rest] = args.split(/ (?=-)/);
  return [name, ...rest.join(' ').split(' ')];
}

export function processInfo(pid: number): ProcessInfo | undefined {
  return existsSync('/proc/self/stat') ? readProc(pid) : listFromPs().find((process) => process.pid === pid);
}

export function isStillRunning(known: { pid: number; startedAt: string }): boolean {
  return processInfo(known.pid)?.startedAt === known.startedAt;
}

export function signalIfStillRunning(known: { pid: number; startedAt: string }, signal: NodeJS.Signals): void {
  if (!isStillRunning(known)) return;
  try {
    process.kill(known.pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** True when all of them have ended in time. */
export async function waitUntilEnded(
  processes: readonly { pid: number; startedAt: string }[],
  timeoutMs: number,
): Promise<boolean> {
  const deadline = Date.now() + timeoutMs;
  while (processes.some(isStillRunning)) {
    if (Date.now() > deadline) return false;
    await delay(20);
  }
  return true;
}
