/** Gentle traffic with retries, from a load that is started again like everything else, with a ledger for each start. */
import { randomInt } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { startChild, type Child } from './child.ts';
import { keep, type Kept } from './keep.ts';
import type { System } from './system.ts';

export interface Traffic {
  kept: Kept;
  /** Of all starts that have sent something, those of kept data included. */
  ledgers(): string[];
  stop(): Promise<void>;
}

/** The longest that a load can be told, and no longer than it has keys for; then another one follows. */
const longestS = 86_400;
const keys = 40_000_000;

export function startTraffic({ doors }: System, rate: number, directory: string): Traffic {
  mkdirSync(directory, { recursive: true });
  let child: Child | undefined;
  let starts = 0;
  const began = Date.now();
  const kept = keep({
    name: 'load',
    kind: 'load',
    start: async () => {
      const ready = Promise.withResolvers<void>();
      const ledger = join(directory, `${began}-${(starts += 1)}.tsv`);
      const args = [
        `--url=${doors.http.join()}`,
        `--grpc=${doors.grpc.join()}`,
        `--rate=${rate}`,
        `--duration=${Math.floor(Math.min(longestS, keys / rate))}`,
        `--ledger=${ledger}`,
        // Another each time: with the same one the same keys would come again.
        `--seed=${randomInt(2 ** 32)}`,
        '--status-rate=0.2',
        '--spacing=poisson',
        '--clients=16',
        '--admin-port=0',
      ];
      const started = startChild('lab/load/main.ts', args, (line) => {
        if (line['ready'] === true) ready.resolve();
      });
      child = started;
      const failed = started.ended.then((): never => {
        throw new Error(`the load ended: ${started.said()}`);
      });
      failed.catch(() => {});
      await Promise.race([ready.promise, failed]).catch((error: unknown) => {
        rmSync(ledger, { force: true }); // It has sent nothing, so its ledger tells nothing.
        throw error;
      });
      return { pid: started.pid, ended: started.ended };
    },
  });
  return {
    kept,
    ledgers: () =>
      readdirSync(directory)
        .filter((name) => name.endsWith('.tsv'))
        .map((name) => join(directory, name))
        .filter((path) => statSync(path).size > 0),
    stop: async () => {
      const left = kept.leaveAlone();
      child?.kill();
      await left;
      await child?.ended;
    },
  };
}
