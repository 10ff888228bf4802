// Checks on the repository itself: rooms and imports, leftovers, traces of a machine, links, pages
// against tables. `npm run check -- tidy` runs it; what each guard watches stands in tools/tidy/.
import { join } from 'node:path';
import { inspect } from './tidy/guards.ts';
import { readTree } from './tidy/tree.ts';
import type { Problem } from './tidy/tree.ts';

const tree = readTree(join(import.meta.dirname, '..'));
const { problems, signals } = inspect(tree, { registry: process.env['npm_config_registry'] });

for (const signal of signals) console.log(`signal   ${describe(signal)}`);
for (const problem of problems) console.log(`problem  ${describe(problem)}`);
console.log(`${tree.size} files, ${problems.length} problems, ${signals.length} signals`);
process.exitCode = problems.length === 0 ? 0 : 1;

function describe({ path, line, message }: Problem): string {
  return `${path}${line === undefined ? '' : `:${line}`}: ${message}`;
}
