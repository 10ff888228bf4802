/** Who used the CPU, from /proc: in microseconds since each process began. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';

export const canReadCpu = existsSync('/proc/self/stat');

/** Processes whose work counts together; `withChildren` for a server that works in children, such as Postgres. */
export interface Group {
  pids: readonly number[];
  withChildren?: true;
}

export interface CpuReading<Who extends string> {
  atMs: number;
  us: Record<Who, number>;
  machineUs: number;
  /** What the host has given to others though we had work. */
  stolenUs: number;
}

export function readCpu<Who extends string>(watched: Record<Who, Group>): CpuReading<Who> {
  const entries = Object.entries<Group>(watched).map(([who, { pids, withChildren }]) => [
    who,
    pids.reduce((sum, pid) => sum + (withChildren ? serverCpu(pid) : cpuOf(pid)), 0),
  ]);
  const machine = readFileSync('/proc/stat', 'utf8');
  return {
    atMs: performance.now(),
    us: Object.fromEntries(entries) as Record<Who, number>,
    machineUs: busyUs(machine),
    stolenUs: stolenUs(machine),
  };
}

/** How many cores each kept busy between two readings; `others`: all that is not ours, kernel threads and this program too. */
export function coresBetween<Who extends string>(
  before: CpuReading<Who>,
  after: CpuReading<Who>,
): Record<Who | 'others', number> {
  const us = 1_000 * (after.atMs - before.atMs);
  const names = Object.keys(before.us) as Who[];
  const cores = names.map((who) => (after.us[who] - before.us[who]) / us);
  const ours = cores.reduce((sum, share) => sum + share, 0);
  // The two files are not read at the same moment, and their clocks tick in 10 ms.
  const others = Math.max(0, (after.machineUs - before.machineUs) / us - ours);
  const entries = names.map((who, n) => [who, cores[n]!] as const);
  return { ...Object.fromEntries(entries), others } as Record<Who | 'others', number>;
}

/** Of all the time that the machine's cores have had between two readings. */
export function stolenShare(before: CpuReading<string>, after: CpuReading<string>): number {
  return (after.stolenUs - before.stolenUs) / (1_000 * (after.atMs - before.atMs) * availableParallelism());
}

/** A tick of /proc, the same on every Linux that Node runs on. */
const tickUs = 10_000;

export interface Stat {
  parent: number;
  /** Its own, all threads. */
  ownUs: number;
  /** Of children that have ended and been waited for. */
  endedChildrenUs: number;
}

export function parseStat(text: string): Stat {
  // The second field is the name in parentheses, and may itself hold spaces and parentheses.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const ticks = (...at: number[]): number => at.reduce((sum, field) => sum + Number(fields[field]), 0) * tickUs;
  return { parent: Number(fields[1]), ownUs: ticks(11, 12), endedChildrenUs: ticks(13, 14) };
}

/** Without idle and iowait; what a hypervisor took away (steal) is not idle for us. Guests are counted in user already. */
export function busyUs(procStat: string): number {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = procStat
    .slice(0, procStat.indexOf('\n'))
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return (user + nice + system + irq + softirq + steal) * tickUs;
}

export function stolenUs(procStat: string): number {
  return Number(procStat.slice(0, procStat.indexOf('\n')).split(/\s+/)[8] ?? 0) * tickUs;
}

function statOf(pid: number | string): Stat | undefined {
  try {
    return parseStat(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return undefined; // It ended while we looked.
  }
}

/** 0 if there is no such process any more. */
export function cpuOf(pid: number): number {
  return statOf(pid)?.ownUs ?? 0;
}

/** How processes are looked at; a test has its own. */
interface Processes {
  pids(): readonly string[];
  statOf(pid: number | string): Stat | undefined;
}

const proc: Processes = { pids: () => readdirSync('/proc').filter((name) => /^\d+$/.test(name)), statOf };

const mostScans = 10;

/**
 * Backends are children of the postmaster; those that have ended are in its own entry. One that ends during the scan
 * would be in neither or in both, so that a scan counts only if none did.
 */
export function serverCpu(postmaster: number, { pids, statOf: look }: Processes = proc): number {
  let before = look(postmaster);
  for (let scans = 1; ; scans += 1) {
    const children = pids()
      .flatMap((pid) => look(pid) ?? [])
      .filter(({ parent }) => parent === postmaster);
    const after = look(postmaster);
    // Where backends end all the time there is no better one: it may have the last of them twice.
    if (after?.endedChildrenUs === before?.endedChildrenUs || scans === mostScans) {
      const { ownUs = 0, endedChildrenUs = 0 } = after ?? {};
      return children.reduce((sum, child) => sum + child.ownUs, ownUs + endedChildrenUs);
    }
    before = after;
  }
}
