import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const refused: [args: string[], why: RegExp][] = [
  [['--replay=x.json', '--seed=1', '--pooler'], /a schedule of its own: it goes without --seed, --pooler/],
  [['--replay=x.json', '--rate=100', '--dup-rate=0.3', '--unique-charge'], /--rate, --dup-rate, --unique-charge/],
  [['--crash-point=commit', '--dup-rate=0.3'], /--dup-rate is not of --crash-point/],
  [['--quick', '--soak=2h'], /exclude each other/],
];

for (const [args, why] of refused) {
  test(`flags that would be ignored are refused: ${args.join(' ')}`, async () => {
    const running = promisify(execFile)(process.execPath, [join(import.meta.dirname, 'main.ts'), ...args]);
    await assert.rejects(running, ({ code, stderr }: { code: number; stderr: string }) => {
      assert.match(stderr, why);
      return code === 2;
    });
  });
}
