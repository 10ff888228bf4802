import { keysOfConstant } from './source.ts';
import { linesMatching } from './tree.ts';
import type { Problem, Tree } from './tree.ts';

const errorsSource = 'packages/twiceproof/src/errors.ts';
const errorsPage = 'docs/errors.md';

/** The table of errors and its page name the same codes. */
export function checkErrorPage(tree: Tree): Problem[] {
  const inTable = keysOfConstant(errorsSource, tree.get(errorsSource) ?? '', 'errorTable');
  const onPage = linesMatching(tree.get(errorsPage) ?? '', /^## TP_\w+$/).map(({ match }) => match.slice(3));
  // A table that moved would otherwise agree with an empty page.
  if (inTable.length === 0) return [{ path: errorsSource, message: 'has no errorTable with codes in it' }];
  const missing = inTable.filter((code) => !onPage.includes(code));
  const unknown = onPage.filter((code) => !inTable.includes(code));
  return [
    ...missing.map((code) => ({ path: errorsPage, message: `has no heading "## ${code}"` })),
    ...unknown.map((code) => ({ path: errorsPage, message: `explains ${code}, which does not exist` })),
  ];
}

const prepare = 'node tools/prepare.mjs';

/** On a fresh clone, and under an old Node, every script must prepare before it runs. */
export function checkScripts(tree: Tree): Problem[] {
  const path = 'package.json';
  const { scripts = {} } = JSON.parse(tree.get(path) ?? '{}') as { scripts?: Record<string, string> };
  const names = Object.keys(scripts);
  const isPreScript = (name: string) => name.startsWith('pre') && names.includes(name.slice('pre'.length));
  return names
    .filter((name) => !isPreScript(name) && scripts[`pre${name}`] !== prepare)
    .map((name) => ({ path, message: `script "${name}" needs "pre${name}": "${prepare}"` }));
}

/** With `omit-lockfile-registry-resolved` the lockfile names no host; an npm that ignored it would add them all. */
export function checkLockfile(tree: Tree): Problem[] {
  const path = 'package-lock.json';
  const found = linesMatching(tree.get(path) ?? '', /"resolved": "http/);
  return found.slice(0, 1).map(({ line }) => ({
    path,
    line,
    message: `${found.length} packages name the host that they came from; reinstall with this repository's .npmrc`,
  }));
}

interface Locked {
  packages?: Record<string, { optionalDependencies?: Record<string, string> }>;
}

/**
 * npm leaves an optional package that it could not find out of the lockfile without a word, and then
 * `npm ci` refuses the lockfile, on every fresh clone: choose a version of which all platforms are there.
 */
export function checkOptionalPackages(tree: Tree): Problem[] {
  const path = 'package-lock.json';
  const { packages = {} } = JSON.parse(tree.get(path) ?? '{}') as Locked;
  return Object.entries(packages).flatMap(([at, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies)
      .filter((name) => !(`node_modules/${name}` in packages) && !(`${at}/node_modules/${name}` in packages))
      .map((name) => ({ path, message: `${at || 'the root'} wants ${name}, which is not in the lockfile` })),
  );
}
