import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, isAbsolute, join, relative, sep } from 'node:path';
import { listFiles } from '../tidy/tree.ts';

export interface Copy {
  /** Everything below, to be removed as one. */
  base: string;
  tree: string;
  /** For temporary files of the test, so that a test which is ended leaves none. */
  temporary: string;
}

/** A copy of the tree as it stands, with what is not committed yet, in which every workspace resolves to the copy. */
export function copyTree(root: string): Copy {
  const base = realpathSync(mkdtempSync(join(tmpdir(), 'twiceproof-plant-')));
  const copy = { base, tree: join(base, 'tree'), temporary: join(base, 'tmp') };
  mkdirSync(copy.temporary);
  // Postgres may run as another user than we do, and must be able to get at its files.
  chmodSync(base, 0o755);
  chmodSync(copy.temporary, 0o1777);
  fill(realpathSync(root), copy.tree);
  return copy;
}

function fill(origin: string, copy: string): void {
  const files = listFiles(origin).filter((path) => existsSync(join(origin, path)));
  for (const path of files) {
    mkdirSync(dirname(join(copy, path)), { recursive: true });
    cpSync(join(origin, path), join(copy, path), { verbatimSymlinks: true });
  }
  for (const manifest of files.filter((path) => path === 'package.json' || path.endsWith('/package.json'))) {
    const modules = join(dirname(manifest), 'node_modules');
    if (existsSync(join(origin, modules))) linkModules(origin, copy, modules);
  }
  // The tree is a repository for `git apply`, and for tests that ask git what it tracks.
  execFileSync('git', ['init', '--quiet'], { cwd: copy, stdio: 'ignore' });
}

/**
 * Installed packages are links to the original. A workspace is a link too, and would lead the copy
 * back to the original sources, where the bug is not: it becomes a link to its copy.
 */
function linkModules(origin: string, copy: string, folder: string): void {
  mkdirSync(join(copy, folder), { recursive: true });
  for (const entry of readdirSync(join(origin, folder))) {
    const path = join(folder, entry);
    const original = join(origin, path);
    if (entry.startsWith('@')) linkModules(origin, copy, path);
    else symlinkSync(workspaceCopy(origin, copy, original) ?? original, join(copy, path));
  }
}

function workspaceCopy(origin: string, copy: string, entry: string): string | undefined {
  if (!lstatSync(entry).isSymbolicLink() || !existsSync(entry)) return undefined;
  const target = relative(origin, realpathSync(entry));
  const isOurs = !isAbsolute(target) && !target.startsWith('..') && !target.split(sep).includes('node_modules');
  return isOurs ? join(copy, target) : undefined;
}
