// Runs before every npm script, on whatever Node the machine has, so it is plain JavaScript:
// installs the dependencies when they are missing or differ from the lockfile, then makes sure that
// the Node which will run the script can run TypeScript as it is.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));

function packagesIn(lockfile) {
  try {
    return JSON.parse(readFileSync(join(root, lockfile), 'utf8')).packages;
  } catch {
    return undefined;
  }
}

/** npm writes what it installed to node_modules/.package-lock.json; what is optional may be absent there. */
export function isInstalled(wanted, installed) {
  if (!installed) return false;
  return Object.entries(wanted).every(([path, { version, optional, link }]) => {
    if (!path.startsWith('node_modules/') || link) return true;
    const found = installed[path];
    return found ? found.version === version : Boolean(optional);
  });
}

/** Types are stripped without a flag, and our dependencies run, from these versions on. */
export function isNewEnough(version) {
  const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number);
  if (major === 22) return minor >= 22;
  if (major === 24) return minor >= 6;
  return major > 24;
}

function stop(sentence) {
  console.error(`twiceproof: ${sentence}`);
  process.exit(3);
}

function main() {
  if (!isInstalled(packagesIn('package-lock.json'), packagesIn('node_modules/.package-lock.json'))) {
    console.error('twiceproof: installing the dependencies (npm ci) ...');
    const npm = process.env.npm_execpath;
    const [command, args] = npm ? [process.execPath, [npm, 'ci']] : ['npm', ['ci']];
    // stdout belongs to the script that follows, which may print JSON.
    const result = spawnSync(command, [...args, '--loglevel=error'], { cwd: root, stdio: ['ignore', 2, 2] });
    if (result.status !== 0)
      stop('`npm ci` failed; its reason stands above. Check the network and the disk, then try again.');
  }
  const found = spawnSync('node', ['--version'], { encoding: 'utf8' }).stdout?.trim() ?? 'none';
  if (!isNewEnough(found)) {
    stop(
      `this needs Node 22.22+ or 24.6+, and no packaged Node fits this platform; the PATH has ${found}. Install a newer Node and try again.`,
    );
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
