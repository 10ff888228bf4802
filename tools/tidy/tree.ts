import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A repository as the guards see it: the text of each file by its path. A test can write one down in a few lines. */
export type Tree = ReadonlyMap<string, string>;

export interface Problem {
  path: string;
  line?: number;
  message: string;
}

/** What git tracks, or would track if it were added: so a file is checked before its first commit. */
export function listFiles(root: string): string[] {
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  return [...new Set(listed.split('\0'))].filter((path) => path !== '').toSorted();
}

export function readTree(root: string): Tree {
  const tree = new Map<string, string>();
  for (const path of listFiles(root)) {
    const text = readText(join(root, path));
    if (text !== undefined) tree.set(path, text);
  }
  return tree;
}

/** Undefined for a file that is deleted but still in the index; empty for a binary one, which only has to exist. */
function readText(file: string): string | undefined {
  try {
    const bytes = readFileSync(file);
    return bytes.includes(0) ? '' : bytes.toString('utf8');
  } catch (error) {
    if (['ENOENT', 'EISDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined;
    throw error;
  }
}

export function linesMatching(text: string, pattern: RegExp): { line: number; match: string }[] {
  return text.split('\n').flatMap((content, index) => {
    const found = pattern.exec(content);
    return found ? [{ line: index + 1, match: found[0] }] : [];
  });
}

export const isTest = (path: string) => path.endsWith('.test.ts');
export const isSource = (path: string) => /\.(ts|mts|mjs|js)$/.test(path);
