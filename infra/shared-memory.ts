/** The one thing that a killed Postgres leaves outside its data directory: a small System V segment. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** After the server has ended. A clean end has removed the segment, and the file that names it. */
export function freeSharedMemory(dataDirectory: string): void {
  const file = join(dataDirectory, 'postmaster.pid');
  const table = '/proc/sysvipc/shm';
  if (!existsSync(file) || !existsSync(table)) return;
  const [key, id] = (readFileSync(file, 'utf8').split('\n')[6] ?? '').trim().split(/\s+/).map(Number);
  // Only if it is still that very segment and nobody uses it: ids are given out again.
  const isOurs = readFileSync(table, 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/).map(Number))
    .some((row) => row[0] === key && row[1] === id && row[6] === 0);
  if (isOurs) spawnSync('ipcrm', ['-m', String(id)]);
}
