import { checkImports } from './imports.ts';
import { checkErrorPage, checkLockfile, checkOptionalPackages, checkScripts } from './repository.ts';
import { parseSource } from './source.ts';
import type { Source } from './source.ts';
import { checkLeftovers, checkLinks, checkMachineTraces, measureLengths } from './text.ts';
import { isSource } from './tree.ts';
import type { Problem, Tree } from './tree.ts';

export interface Findings {
  problems: Problem[];
  /** Worth a look; nothing fails for them. */
  signals: Problem[];
}

/** Everything that we watch, over one tree. */
export function inspect(tree: Tree, options: { registry?: string | undefined } = {}): Findings {
  const { sources, problems } = parseAll(tree);
  return {
    problems: [
      ...problems,
      ...checkImports(tree, sources),
      ...checkLeftovers(tree, sources),
      ...checkMachineTraces(tree, options.registry),
      ...checkLinks(tree),
      ...checkErrorPage(tree),
      ...checkScripts(tree),
      ...checkLockfile(tree),
      ...checkOptionalPackages(tree),
    ],
    signals: measureLengths(tree, sources),
  };
}

function parseAll(tree: Tree): { sources: Map<string, Source>; problems: Problem[] } {
  const sources = new Map<string, Source>();
  const problems: Problem[] = [];
  for (const [path, text] of tree) {
    if (!isSource(path)) continue;
    try {
      sources.set(path, parseSource(path, text));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      problems.push({ path, message: error.message });
    }
  }
  return { sources, problems };
}
