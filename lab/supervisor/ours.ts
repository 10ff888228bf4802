/** Which processes are ours, and their end. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { listProcesses, signalIfStillRunning, waitUntilEnded } from '@twiceproof/infra/processes';

/** A process that is starting may start another while we look; more rounds than this mean a fork bomb. */
const maxRounds = 10;

/**
 * Ends whatever was started with a socket of this directory in its environment. The directory's name is
 * random and only our children are told it, so no other process can be taken for one; and a child needs
 * no flag of its own to bear the mark, which a grandchild inherits.
 */
export async function endAllOf(directory: string): Promise<void> {
  const mark = `TWICEPROOF_POINTS=${directory}/`;
  for (let round = 1; round <= maxRounds; round += 1) {
    const ours = listProcesses().filter(({ pid }) => environmentOf(pid).includes(mark));
    if (ours.length === 0) return;
    for (const process of ours) signalIfStillRunning(process, 'SIGKILL');
    await waitUntilEnded(ours, 5_000);
  }
  throw new Error(`processes with ${mark} in their environment do not end`);
}

/** The empty string for a process that has ended, or belongs to somebody else. */
function environmentOf(pid: number): string {
  try {
    if (existsSync('/proc/self/environ')) return readFileSync(`/proc/${pid}/environ`, 'utf8');
    return execFileSync('ps', ['-wwE', '-o', 'command=', '-p', String(pid)], { encoding: 'utf8' });
  } catch {
    return '';
  }
}
