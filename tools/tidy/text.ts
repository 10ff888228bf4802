import { posix } from 'node:path';
import type { Source } from './source.ts';
import { isSource, isTest, linesMatching } from './tree.ts';
import type { Problem, Tree } from './tree.ts';

const leftover = /\b(FIXME|XXX)\b/;

/** Marks of unfinished work: in comments of sources, and anywhere else in what is not code. */
export function checkLeftovers(tree: Tree, sources: ReadonlyMap<string, Source>): Problem[] {
  const problems: Problem[] = [];
  for (const [path, { comments, unfinishedTests }] of sources) {
    for (const { line, text } of comments) {
      const found = leftover.exec(text);
      if (found) problems.push({ path, line, message: `leftover ${found[1]}` });
    }
    for (const { line, text } of unfinishedTests) problems.push({ path, line, message: `leftover ${text}` });
  }
  for (const [path, text] of tree) {
    if (isSource(path) || path === 'package-lock.json') continue;
    const prose = path.endsWith('.md') ? withoutCode(text) : text;
    for (const { line, match } of linesMatching(prose, leftover)) {
      problems.push({ path, line, message: `leftover ${match}` });
    }
  }
  return problems;
}

const developerPath = /(?<![\w.~*-])\/(?:home|Users|work|root)\/[\w.-]+|[A-Z]:\\Users\\\w+/;
const registryHost =
  /\b(?:registry\.(?:npmjs\.org|yarnpkg\.com|npmmirror\.com)|(?:[\w-]+\.)*(?:artifactory|nexus|verdaccio)\b\.[\w.-]+)/;

/** Nothing of the machine that a file was written on: no home directory, and no registry, least of all a private one. */
export function checkMachineTraces(tree: Tree, ownRegistry: string | undefined): Problem[] {
  const ownHost = ownRegistry ? new URL(ownRegistry).host : undefined;
  return [...tree].flatMap(([path, text]) => [
    ...linesMatching(text, developerPath).map(({ line, match }) => ({
      path,
      line,
      message: `path of one machine: ${match}`,
    })),
    ...linesMatching(text, registryHost).map(({ line, match }) => ({ path, line, message: `registry host: ${match}` })),
    ...(ownHost && text.includes(ownHost)
      ? [{ path, message: 'names the registry that this machine installs from' }]
      : []),
  ]);
}

/** A signal, not a law: about 300 lines for a file (500 for a test), about 70 for a function. */
export function measureLengths(tree: Tree, sources: ReadonlyMap<string, Source>): Problem[] {
  return [...sources].flatMap(([path, { functions }]) => {
    const lines = (tree.get(path) ?? '').split('\n').length - 1;
    const limit = isTest(path) ? 500 : 300;
    const long = functions.filter((found) => found.lines > 70);
    return [
      ...(lines > limit ? [{ path, message: `${lines} lines in one file (signal at ${limit})` }] : []),
      ...long.map(({ line, name, lines: count }) => ({
        path,
        line,
        message: `${name} has ${count} lines (signal at 70)`,
      })),
    ];
  });
}

/** Every relative link of every page leads to a file or folder of this repository. */
export function checkLinks(tree: Tree): Problem[] {
  const folders = new Set([...tree.keys()].flatMap(parents));
  const pages = [...tree].filter(([path]) => path.endsWith('.md'));
  return pages.flatMap(([path, text]) => {
    const lines = withoutCode(text).split('\n');
    return lines.flatMap((content, index) =>
      linkTargets(content).flatMap((target): Problem[] => {
        const wanted = posix.join(posix.dirname(path), decodeURI(target)).replace(/\/$/, '');
        if (tree.has(wanted) || folders.has(wanted)) return [];
        return [{ path, line: index + 1, message: `link to ${target}, which does not exist` }];
      }),
    );
  });
}

function parents(path: string): string[] {
  const parts = path.split('/');
  return ['.', ...parts.slice(1).map((_, index) => parts.slice(0, index + 1).join('/'))];
}

/** `[text](target "title")`, `![image](<target>)` and `[name]: target`, without what leaves the repository. */
function linkTargets(line: string): string[] {
  const inline = [...line.matchAll(/\]\(\s*<?([^)\s>]+)>?[^)]*\)/g)];
  const reference = [...line.matchAll(/^\s{0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?/g)];
  const targets = [...inline, ...reference].map((found) => (found[1] ?? '').replace(/[?#].*$/, ''));
  return targets.filter((target) => target !== '' && !/^[a-z][a-z0-9+.-]*:/i.test(target));
}

/** The same lines, with fenced blocks and code spans emptied: what they say is about code, or an example. */
function withoutCode(markdown: string): string {
  let fence: string | undefined;
  const lines = markdown.split('\n').map((line) => {
    const mark = /^\s*(```+|~~~+)/.exec(line)?.[1];
    if (mark && fence === undefined) fence = mark;
    else if (mark && fence !== undefined && mark.startsWith(fence)) fence = undefined;
    else if (fence === undefined) return line.replace(/`[^`]*`/g, '``');
    return '';
  });
  return lines.join('\n');
}
