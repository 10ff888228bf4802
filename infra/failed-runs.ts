/** The logs of runs that failed: an error names them, so they must outlive their run. The last few are kept. */
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';

const kept = 3;

/** Answers where the logs are now: at the same places below this directory. */
export function keepLogs(runDirectory: string, state: string): string {
  const failed = join(state, 'failed');
  const target = join(failed, basename(runDirectory));
  mkdirSync(target, { recursive: true });
  for (const path of readdirSync(runDirectory, { recursive: true, encoding: 'utf8' })) {
    if (path.endsWith('.log') && statSync(join(runDirectory, path)).isFile())
      cpSync(join(runDirectory, path), join(target, path), { recursive: true });
  }
  const byAge = readdirSync(failed).toSorted(
    (a, b) => statSync(join(failed, b)).mtimeMs - statSync(join(failed, a)).mtimeMs,
  );
  for (const old of byAge.slice(kept)) rmSync(join(failed, old), { recursive: true, force: true });
  return existsSync(target) ? target : runDirectory;
}
