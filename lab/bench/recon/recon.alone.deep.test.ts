import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { EXIT } from '@twiceproof/program';
import { hearing } from '../hearing-under-test.ts';
import { canReadCpu } from '../cpu.ts';
import { benchRecon, type ReconResult } from './bench.ts';

test('a run of many orders is judged in one pass: clean, whole, and each step has its time', async () => {
  if (!canReadCpu) return; // The bench itself refuses to run elsewhere than on Linux.
  const directory = mkdtempSync(join(tmpdir(), 'bench-'));
  const { said, output } = hearing();
  try {
    const call = { command: 'npm run bench -- recon', orders: 100_000, seed: 7, directory };
    assert.equal(await benchRecon(call, output, new AbortController().signal), EXIT.ok, said.join('\n'));
    const { run, orders } = JSON.parse(readFileSync(join(directory, 'result.json'), 'utf8')) as ReconResult;
    const { requests, orders: made, messages, charges } = run.counts;
    assert.deepEqual([orders, made, charges, messages], [100_000, 100_000, 100_000, 120_000]);
    assert.equal(requests, 137_142, 'each seventh of 120,000 twice');
    for (const cost of Object.values(run.cpuUs)) assert.ok(cost > 0, JSON.stringify(run));
    const steps = Object.values(run.stepsMs).reduce((sum, ms) => sum + ms, 0);
    assert.ok(steps > 0.8 * run.tookMs && steps <= 1.01 * run.tookMs, JSON.stringify(run));
    assert.ok(run.memoryMB > 20);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
