import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { EXIT } from '@twiceproof/program';
import { hearing } from '../hearing-under-test.ts';
import { canReadCpu } from '../cpu.ts';
import { judgeRelay, relayTargets } from './bars.ts';
import { benchRelay } from './bench.ts';
import { caseNames, type RelayScale } from './cases.ts';
import type { RelayResult } from './result.ts';

const scale: RelayScale = {
  warmUpRows: 1_000,
  rows: 2_000,
  peer: { rows: 200, capS: 1 },
  shards: [1, 2],
  batches: [200],
  batch: 200,
  rounds: 1,
  capS: 1,
  steady: { warmS: 0.5, measuredS: 1, burstS: 0.25, afterS: 1.5, attempts: 1 },
  heldS: 2,
  heldPerSecond: 200,
};

test('a tiny bench of the relay has every figure, and a bar that is not reached fails it', async () => {
  if (!canReadCpu) return; // The bench itself refuses to run elsewhere than on Linux.
  const directory = mkdtempSync(join(tmpdir(), 'bench-'));
  const { said, output } = hearing();
  try {
    const absurd = { ...relayTargets, overCeiling: 1_000 };
    const call = { command: 'npm run bench -- relay', scale, only: caseNames, seed: 7, targets: absurd, directory };
    assert.equal(await benchRelay(call, output, new AbortController().signal), EXIT.failed, said.join('\n'));
    assert.deepEqual(readdirSync(directory), ['plot.svg', 'result.json']);
    const result = JSON.parse(readFileSync(join(directory, 'result.json'), 'utf8')) as RelayResult;
    requireAll(result);
    assert.equal(result.bars.length, judgeRelay(result.rounds, scale).length);
    assert.match(said.join('\n'), /over that of the ceiling, batches of 200 +bar .*>= 1000 +FAIL/);
    // How fast a shared machine happens to be is not judged here; what must never happen is.
    const never = result.bars.filter(({ target }) => target === 'none');
    assert.deepEqual(
      never.map(({ pass }) => pass),
      [true],
    );
  } finally {
    rmSync(directory, { recursive: true });
  }
});

function requireAll({ rounds, held, series, environment }: RelayResult): void {
  assert.match(environment.postgres, /^\d+\.\d+/);
  assert.match(environment.kafka, /^\d+\.\d+/);
  const [{ ceiling, drain, textbook, peer, steady }] = rounds as [RelayResult['rounds'][0]];
  assert.deepEqual([Object.keys(ceiling), Object.keys(drain)], [['200'], ['1x200', '2x200']]);
  assert.deepEqual(Object.keys(peer), ['polling', 'replication']);
  const others = [...Object.values(textbook), ...Object.values(peer)];
  const relays = [...Object.values(drain), ...others];
  for (const run of [...Object.values(ceiling), ...relays]) {
    assert.ok(run.perSecond > 0 && run.rows > 0 && run.cpuUs.relay + run.cpuUs.brokers > 0, JSON.stringify(run));
  }
  // Each row that the others publish is updated; of ours none is, only the cursor.
  for (const run of others) assert.ok(run.walBytes > 100, JSON.stringify(run));
  for (const run of Object.values(drain)) assert.ok(run.deadTuples < 100, JSON.stringify(run));
  const { latency, bursts, missing } = steady!;
  assert.equal(missing, 0);
  assert.deepEqual(
    [Object.keys(latency), Object.keys(bursts)],
    [
      ['1000', '5000'],
      ['2', '3'],
    ],
  );
  for (const { p50Ms, p99Ms, maxMs } of Object.values(latency)) {
    assert.ok(p50Ms > 0 && p50Ms <= p99Ms && p99Ms <= maxMs * 1.01);
  }
  assert.ok(series[0]!.length > 5);
  assert.deepEqual(Object.keys(held), ['ours', 'textbook', 'peer']);
  for (const { lastPerSecond, perSecond } of Object.values(held)) assert.ok(lastPerSecond > 0 && perSecond > 0);
}
