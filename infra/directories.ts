/** Where things are kept: state in the checkout, what runs can share in the user's cache directory. */
import { createHash, randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { Refusal } from '@twiceproof/program';

export const checkout = dirname(import.meta.dirname);

/** Everything that belongs to this checkout: runs, kept data. Ignored by git, and safe to delete when nothing runs. */
export function stateDirectory(): string {
  return process.env['TWICEPROOF_STATE_DIR'] ?? join(checkout, '.twiceproof');
}

/** The part of the state that servers own. It is elsewhere only when root's checkout is closed to the user they run as. */
export function openStateDirectory(state: string = stateDirectory()): string {
  if (!isRoot || isReachableForNobody(state)) return state;
  const elsewhere = join(cacheDirectory(), `state-${createHash('sha256').update(state).digest('hex').slice(0, 8)}`);
  if (isReachableForNobody(elsewhere)) return elsewhere;
  throw new Refusal(
    `Postgres does not run as root, and user ${nobody}, as whom it would run, cannot enter ${state} or ${elsewhere}.`,
    'Run this as an ordinary user, or clone to a directory that others may enter (chmod o+x on the path).',
  );
}

/** Postgres refuses to run as root, so there it runs as this user, who exists by number everywhere ("nobody"). */
export const nobody = 65534;
export const isRoot = process.getuid?.() === 0;

/** Whether the user `nobody` may enter this directory, or read this file. */
export function isReachableForNobody(path: string): boolean {
  for (let at = path; ; at = dirname(at)) {
    if (existsSync(at)) {
      const { mode, uid } = statSync(at);
      const bits = uid === nobody ? mode >> 6 : mode;
      if ((bits & 0o1) === 0) return false;
    }
    if (at === dirname(at)) return true;
  }
}

export function cacheDirectory(env: NodeJS.ProcessEnv = process.env): string {
  if (env['TWICEPROOF_CACHE_DIR']) return env['TWICEPROOF_CACHE_DIR'];
  if (env['XDG_CACHE_HOME']) return join(env['XDG_CACHE_HOME'], 'twiceproof');
  const home = homedir();
  // The server that runs as `nobody` must reach its files, and root's home is closed to it as a rule.
  if (isRoot && !isReachableForNobody(home)) return '/var/cache/twiceproof';
  return process.platform === 'darwin' ? join(home, 'Library/Caches/twiceproof') : join(home, '.cache/twiceproof');
}

/** Refuses before a download or a server fills the disk: half-written files are harder to explain. */
export function requireFreeSpace(
  directory: string,
  neededBytes: number,
  what: string,
  freeBytes: (existing: string) => number = freeBytesAt,
): void {
  let existing = directory;
  while (!existsSync(existing)) existing = dirname(existing);
  const free = freeBytes(existing);
  if (free >= neededBytes) return;
  throw new Refusal(
    `No space left: ${what} needs ${megabytes(neededBytes)} in ${directory}, and ${megabytes(free)} are free.`,
    'Free some space there. `npm run infra -- status` shows what is kept; TWICEPROOF_CACHE_DIR moves the cache.',
  );
}

function freeBytesAt(existing: string): number {
  const { bavail, bsize } = statfsSync(existing);
  return bavail * bsize;
}

function megabytes(bytes: number): string {
  return `${Math.ceil(bytes / 1e6)} MB`;
}

/**
 * A directory in the cache that is built once. What is there is never changed: each build has a directory of its own,
 * and a small file beside them, replaced in one step, names the one that counts, and its digest. So two runs at once
 * cannot see half of it, nor take it away from under each other; and since the digest is checked at each use, a
 * damaged one is built again instead of being believed.
 */
export async function cachedDirectory(
  name: string,
  build: (directory: string) => Promise<void>,
  cache: string = cacheDirectory(),
): Promise<string> {
  mkdirSync(cache, { recursive: true });
  const found = currentBuild(cache, name);
  removeAbandoned(cache, name, found);
  if (found) return join(cache, found);
  const entry = `${name}.${randomBytes(4).toString('hex')}`;
  const directory = join(cache, entry);
  try {
    mkdirSync(directory);
    await build(directory);
    writeFileSync(`${directory}.current`, `${entry} ${digestOf(directory)}`);
    renameSync(`${directory}.current`, join(cache, `${name}.current`));
    return directory;
  } catch (error) {
    rmSync(directory, { recursive: true, force: true });
    throw error;
  }
}

/** The build that counts, if it is there and undamaged. */
function currentBuild(cache: string, name: string): string | undefined {
  const file = join(cache, `${name}.current`);
  if (!existsSync(file)) return undefined;
  const [entry = '', digest] = readFileSync(file, 'utf8').split(' ');
  const isThere = entry.startsWith(`${name}.`) && existsSync(join(cache, entry));
  return isThere && digestOf(join(cache, entry)) === digest ? entry : undefined;
}

/**
 * What a build has left that was killed on the way, and builds that were replaced. Only those of an hour ago: a
 * younger one may be under way, or in use.
 */
function removeAbandoned(cache: string, name: string, current: string | undefined): void {
  const isBuild = (entry: string): boolean =>
    entry.startsWith(`${name}.`) && /^[0-9a-f]{8}(\.current)?$/.test(entry.slice(name.length + 1));
  for (const entry of readdirSync(cache).filter((each) => isBuild(each) && each !== current)) {
    const path = join(cache, entry);
    const modified = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Infinity;
    if (Date.now() - modified > 3_600_000) rmSync(path, { recursive: true, force: true });
  }
}

/** Over names, links and bytes. About 0.1 s for 60 MB. */
export function digestOf(directory: string): string {
  const hash = createHash('sha256');
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => ({ path: join(entry.parentPath, entry.name), isLink: entry.isSymbolicLink() }));
  for (const { path, isLink } of entries.sort((a, b) => (a.path < b.path ? -1 : 1))) {
    hash.update(`${path.slice(directory.length)}\0`);
    if (isLink) hash.update(readlinkSync(path));
    else hashFile(path, (chunk) => hash.update(chunk));
  }
  return hash.digest('hex');
}

export function sha256Of(path: string): string {
  const hash = createHash('sha256');
  hashFile(path, (chunk) => hash.update(chunk));
  return hash.digest('hex');
}

function hashFile(path: string, update: (chunk: Uint8Array) => void): void {
  const buffer = Buffer.allocUnsafe(1 << 20);
  const file = openSync(path, 'r');
  try {
    for (let read = readSync(file, buffer); read > 0; read = readSync(file, buffer)) update(buffer.subarray(0, read));
  } finally {
    closeSync(file);
  }
}
