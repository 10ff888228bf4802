import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { EXIT } from '@twiceproof/program';
import { hearing } from '../hearing-under-test.ts';
import { canReadCpu } from '../cpu.ts';
import { systemTargets } from './bars.ts';
import { benchSystem } from './bench.ts';
import type { SystemScale } from './cases.ts';
import type { SystemResult } from './result.ts';

const scale: SystemScale = { warmS: 2, measuredS: 3, attempts: 1, ladder: [500], ladderS: 2, rounds: 1 };

test('a tiny bench of the whole system has every figure, is judged, and fails by a bar that is not reached', async () => {
  if (!canReadCpu) return; // The bench itself refuses to run elsewhere than on Linux.
  const directory = mkdtempSync(join(tmpdir(), 'bench-'));
  const { said, output } = hearing();
  try {
    const call = {
      command: 'npm run bench -- system',
      scale,
      seed: 7,
      targets: { ...systemTargets, p99Ms: 0.001 },
      directory,
    };
    assert.equal(await benchSystem(call, output, new AbortController().signal), EXIT.failed, said.join('\n'));
    assert.deepEqual(readdirSync(directory), ['plot.svg', 'result.json']);
    const { recon, rounds, series } = JSON.parse(readFileSync(join(directory, 'result.json'), 'utf8')) as SystemResult;
    assert.deepEqual([recon.verdict, recon.deltas], ['clean', {}], recon.reasons.join('\n'));
    assert.ok(recon.counts['orders']! > 5_000);
    const [{ promised, ladder }] = rounds as [SystemResult['rounds'][0]];
    assert.deepEqual(Object.keys(ladder), ['500']);
    for (const run of [promised, ...Object.values(ladder)]) {
      assert.ok(run.p50Ms > 0 && run.p50Ms <= run.p99Ms && run.effectP50Ms <= run.effectP99Ms, JSON.stringify(run));
      for (const share of Object.values(run.cores)) assert.ok(share > 0, JSON.stringify(run));
      assert.equal(run.newLogSegments, 0, 'the server is an aged one');
    }
    assert.ok(series[0]!.length > 1);
    assert.match(said.join('\n'), /POST \/orders at 5000 requests\/s: p99, ms +bar .*< 0\.001 +FAIL/);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
