// Checks the package as those see it who install it: packs it (which builds it), asks `publint` and
// `attw` about its exports, and then uses every export from an empty project, in types and at run time.
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = join(import.meta.dirname, '..');
const modules = join(root, 'node_modules');

interface Manifest {
  name: string;
  exports: Record<string, string | { types?: string }>;
  dependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
}

const directory = mkdtempSync(join(tmpdir(), 'twiceproof-package-'));
try {
  process.exitCode = await checkPackage(directory);
} finally {
  rmSync(directory, { recursive: true, force: true });
}

async function checkPackage(into: string): Promise<0 | 1> {
  const packed = await run('npm pack', npm(), ['pack', '--pack-destination', into], join(root, 'packages/twiceproof'));
  if (!packed.ok) return report([packed]);
  const tarball = join(into, packed.stdout.trim().split('\n').at(-1) ?? '');
  const consumer = makeConsumer(into);
  const unpacked = await run('tar', ['tar'], ['-xzf', tarball, '--strip-components=1', '-C', consumer.package], into);
  if (!unpacked.ok) return report([unpacked]);
  writeConsumer(consumer);
  const node = [process.execPath];
  return report(
    await Promise.all([
      run('publint', node, [join(modules, 'publint/src/cli.js'), 'run', tarball, '--strict'], into),
      run('attw', node, [join(modules, '@arethetypeswrong/cli/dist/index.js'), tarball, '--profile', 'esm-only'], into),
      run('types', node, [join(modules, 'typescript/bin/tsc'), '--pretty', 'false'], consumer.directory).then(onlyOurs),
      run('imports', node, ['main.mjs'], consumer.directory),
    ]),
  );
}

interface Consumer {
  directory: string;
  package: string;
}

function makeConsumer(into: string): Consumer {
  const consumer = { directory: join(into, 'consumer'), package: join(into, 'consumer/node_modules/twiceproof') };
  mkdirSync(consumer.package, { recursive: true });
  return consumer;
}

/** A project that imports every subpath, with the package's declared dependencies and nothing else of ours. */
function writeConsumer(consumer: Consumer): void {
  const manifest = JSON.parse(readFileSync(join(consumer.package, 'package.json'), 'utf8')) as Manifest;
  const dependencies = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies, '@types/node': '' });
  for (const name of dependencies) {
    const link = join(consumer.directory, 'node_modules', name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(modules, name), link, 'junction');
  }
  const subpaths = Object.entries(manifest.exports).filter(([, target]) => typeof target === 'object' && target.types);
  const imports = subpaths.map(([subpath], index) => `import * as e${index} from '${join(manifest.name, subpath)}';`);
  const uses = subpaths.map((_, index) => `if (typeof e${index} !== 'object') throw new Error('no module');`);
  const program = `${[...imports, ...uses].join('\n')}\n`;
  const compilerOptions = { module: 'nodenext', target: 'es2022', strict: true, noEmit: true, types: ['node'] };
  const write = (name: string, text: string) => writeFileSync(join(consumer.directory, name), text);
  write('package.json', '{ "private": true, "type": "module" }');
  write('tsconfig.json', JSON.stringify({ compilerOptions, files: ['main.ts'] }));
  write('main.ts', program);
  write('main.mjs', program);
}

interface Outcome {
  name: string;
  ok: boolean;
  stdout: string;
  output: string;
}

function run(name: string, [command = '', ...first]: string[], args: string[], cwd: string): Promise<Outcome> {
  return new Promise((resolve) => {
    execFile(command, [...first, ...args], { cwd, encoding: 'utf8' }, (error, stdout, stderr) => {
      resolve({ name, ok: error === null, stdout, output: `${stdout}${stderr}` || (error?.message ?? '') });
    });
  });
}

/** Types are checked without `skipLibCheck`, as some users do; what is wrong in a dependency's own types is not ours. */
function onlyOurs(types: Outcome): Outcome {
  const ours = types.output.split('\n').filter((line) => /^(error|main\.ts|node_modules\/twiceproof\/)/.test(line));
  return { ...types, ok: types.ok || ours.length === 0, output: `${ours.join('\n')}\n` };
}

function report(outcomes: Outcome[]): 0 | 1 {
  for (const { name, ok, output } of outcomes) console.log(ok ? `ok      ${name}` : `failed  ${name}\n${output}`);
  return outcomes.every(({ ok }) => ok) ? 0 : 1;
}

/** The npm that runs us, if one does: it need not be on the PATH, and on Windows it is no executable. */
function npm(): string[] {
  const cli = process.env['npm_execpath'];
  return cli?.endsWith('.js') ? [process.execPath, cli] : ['npm'];
}
