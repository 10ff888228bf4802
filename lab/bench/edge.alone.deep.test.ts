import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { EXIT } from '@twiceproof/program';
import { hearing } from './hearing-under-test.ts';
import { judge, targets } from './bars.ts';
import { benchEdge } from './bench.ts';
import type { CaseName, Scale } from './cases.ts';
import { canReadCpu } from './cpu.ts';
import type { EdgeResult } from './result.ts';

const only: CaseName[] = ['plain-insert', 'group', 'hot-group', 'claims'];
const scale: Scale = {
  cases: only,
  keys: 1_000,
  expiringKeys: 1_000,
  rounds: 1,
  warmupS: 1,
  throughputS: 1,
  latencyS: 1,
  attempts: 1,
  claimsS: 1,
};

test('a tiny bench has every figure, and a bar that is not reached fails it', async () => {
  if (!canReadCpu) return; // The bench itself refuses to run elsewhere than on Linux.
  const directory = mkdtempSync(join(tmpdir(), 'bench-'));
  const { said, output } = hearing();
  try {
    const absurd = { ...targets, groupOverPlain: 1_000 };
    const call = { command: 'npm run bench -- edge', scale, only, seed: 7, targets: absurd, directory };
    assert.equal(await benchEdge(call, output, new AbortController().signal), EXIT.failed, said.join('\n'));
    assert.deepEqual(readdirSync(directory), ['plot.svg', 'result.json']);
    const result = JSON.parse(readFileSync(join(directory, 'result.json'), 'utf8')) as EdgeResult;
    requireAll(result);
    assert.equal(result.bars.length, judge(result.rounds).length);
    assert.match(said.join('\n'), /over that of the plain insert +bar .*>= 1000 +FAIL/);
    // How fast a shared machine happens to be is not judged here; what must never happen is.
    assert.deepEqual(
      result.bars.filter(({ target }) => target === 'none').map(({ pass }) => pass),
      [true, true, true],
    );
  } finally {
    rmSync(directory, { recursive: true });
  }
});

function requireAll({ rounds, keysBefore, environment }: EdgeResult): void {
  assert.equal(keysBefore, 2_000);
  assert.match(environment.postgres, /^\d+\.\d+/);
  const [{ edge, hot, claims }] = rounds as [EdgeResult['rounds'][0]];
  assert.deepEqual(Object.keys(edge), ['plain-insert', 'group']);
  for (const { throughput, latency, server } of Object.values(edge)) {
    assert.ok(throughput.okPerSecond > 10 && throughput.errors === 0, JSON.stringify(throughput));
    const { orders, postgres, load } = throughput.cpuUs;
    assert.ok(orders > 0 && postgres > 0 && load > 0, JSON.stringify(throughput));
    for (const { p50Ms, p99Ms, p999Ms, maxMs } of Object.values(latency)) {
      assert.ok(p50Ms > 0 && p50Ms <= p99Ms && p99Ms <= p999Ms && p999Ms <= maxMs * 1.01);
    }
    assert.deepEqual(server.errors, {});
  }
  assert.deepEqual(Object.keys(edge.group!.latency), ['5000', '10000']);
  const run = hot['hot-group']!;
  assert.ok(run.hot.count > 100 && run.cold.count > 100 && run.comparedAnswers > 100);
  assert.deepEqual([run.differentAnswers, run.server.deadlocks, run.server.errors], [0, 0, {}]);
  for (const { claimsPerSecond, cpuUs, repeatedShare } of Object.values(claims!)) {
    assert.ok(claimsPerSecond > 0 && cpuUs > 0 && repeatedShare > 0);
  }
  const swept = Object.values(edge).reduce((sum, { server }) => sum + server.sweptKeysPerSecond, 0);
  assert.ok(swept > 0, 'nothing expired while it ran');
}
