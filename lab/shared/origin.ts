/** What every result says of how it came about: of which tree, and on what. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, totalmem } from 'node:os';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

/** With `+` if files were changed since. */
export function currentCommit(): string {
  // Unpacked without its history, and into somebody else's tree, it would tell of that one.
  if (!existsSync(join(root, '.git'))) return 'unknown';
  try {
    return git('rev-parse', 'HEAD') + (git('status', '--porcelain') === '' ? '' : '+');
  } catch {
    return 'unknown';
  }
}

function git(...args: string[]): string {
  return execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
}

export interface Environment {
  node: string;
  system: string;
  cpu: string;
  cores: number;
  memoryGB: number;
  /** Of one minute, when it was asked: others may share the machine. */
  loadAverage: number;
}

export function environment(): Environment {
  return {
    node: process.version,
    system: `${process.platform} ${release()} ${process.arch}`,
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: availableParallelism(),
    memoryGB: round(totalmem() / 2 ** 30),
    loadAverage: round(loadavg()[0] ?? 0),
  };
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
