// Builds packages/twiceproof/dist: JavaScript, types and source maps for those who install the
// package. Nothing in this repository needs it; `npm pack` calls it through the package's `prepack`.
import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');

// Whatever a file that is now gone has left there would be published.
rmSync(join(root, 'packages/twiceproof/dist'), { recursive: true, force: true });

const tsc = join(root, 'node_modules/typescript/bin/tsc');
const built = spawnSync(process.execPath, [tsc, '--project', join(root, 'tools/tsconfig.build.json')], {
  // `npm pack --json` owns stdout.
  stdio: ['ignore', process.stderr, process.stderr],
});
process.exitCode = built.status ?? 1;
