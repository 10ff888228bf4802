/** Where a run leaves what it has found. */
import { existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { stateDirectory } from '@twiceproof/infra/directories';
import { EXIT, Refusal } from '@twiceproof/program';

/** Of those that nobody gave a name. */
const kept = 5;

export function newDirectory(given: string | undefined, seed: number): string {
  if (given !== undefined) {
    if (existsSync(given)) {
      throw new Refusal(`${given} is there already.`, 'It may be evidence: name another directory.', EXIT.usage);
    }
    mkdirSync(given, { recursive: true });
    return given;
  }
  const all = join(stateDirectory(), 'chaos');
  const time = new Date().toISOString().replaceAll(/[:.]/g, '-');
  const directory = join(all, `${time}-${seed}`);
  mkdirSync(directory, { recursive: true });
  const byAge = readdirSync(all).toSorted((a, b) => statSync(join(all, b)).mtimeMs - statSync(join(all, a)).mtimeMs);
  for (const old of byAge.slice(kept)) rmSync(join(all, old), { recursive: true, force: true });
  return directory;
}
