/** After a violation: fewer faults that break it as well, so that a person has less to look at. */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { withOnly } from './schedule.ts';
import { shrink } from './shrink.ts';
import { besiege, type SiegeOptions } from './siege.ts';

/** Leaves the fewest that were seen to break it in `shrunk.json`, for `--replay`, and each run beside it. */
export async function findFewer(options: SiegeOptions, maxRuns: number): Promise<void> {
  const { schedule, out, progress } = options;
  let runs = 0;
  const file = join(out, 'shrunk.json');
  const { items } = await shrink(
    schedule.faults,
    async (faults) => {
      runs += 1;
      progress(`shrinking: ${faults.length} faults`);
      const there = join(out, `shrink-${runs}`);
      const command = `npm run chaos -- --replay=${join(there, 'schedule.json')}`;
      const smaller = { ...options, command, schedule: withOnly(faults, schedule), out: there };
      const isViolated = (await besiege(smaller)).verdict === 'violated';
      // At once: what was found stays found when the next run comes to nothing.
      if (isViolated) writeFileSync(file, `${JSON.stringify(smaller.schedule, undefined, 2)}\n`);
      return isViolated;
    },
    maxRuns,
  );
  if (!existsSync(file)) {
    progress(`no fewer than ${schedule.faults.length} faults were seen to break it, in ${runs} runs`);
    return;
  }
  progress(`shrunk from ${schedule.faults.length} to ${items.length} faults: npm run chaos -- --replay ${file}`);
}
