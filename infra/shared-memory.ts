/** The one thing that a killed Postgres leaves outside its data directory: a small System V segment. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const table = '/proc/sysvipc/shm';
/** The processes of a server that was killed end by themselves, but not in the same moment. */
const detachedWithinMs = 5_000;

/** After the server has ended. A clean end has removed the segment, and the file that names it. */
export async function freeSharedMemory(dataDirectory: string): Promise<void> {
  const file = join(dataDirectory, 'postmaster.pid');
  if (!existsSync(file) || !existsSync(table)) return;
  const [key, id] = (readFileSync(file, 'utf8').split('\n')[6] ?? '').trim().split(/\s+/).map(Number);
  for (const deadline = performance.now() + detachedWithinMs; performance.now() < deadline; await delay(20)) {
    // Only if it is still that very segment and nobody uses it: ids are given out again.
    const users = readFileSync(table, 'utf8')
      .split('\n')
      .map((line) => line.trim().split(/\s+/).map(Number))
      .find((row) => row[0] === key && row[1] === id)?.[6];
    if (users === 0) spawnSync('ipcrm', ['-m', String(id)]);
    if (users === undefined || users === 0) return;
  }
}
