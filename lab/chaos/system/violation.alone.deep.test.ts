import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { findFewer } from './find-fewer.ts';
import { drawSchedule, type Schedule } from './schedule.ts';
import { besiege, type SiegeOptions } from './siege.ts';

/** Our own programs have not been convicted yet; so somebody stands in for them who doubles whatever comes again. */
test('of a violation logs, ledger, tables and the topic are kept, and fewer faults are found that do it too', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'twiceproof-violation-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const out = join(directory, 'run');
  const config = join(directory, 'recon-config.json');
  writeFileSync(config, '{"inbox":null,"held":null,"states":null}');
  const schedule = drawSchedule({ seed: 5, seconds: 20, rate: 200, uniqueCharge: false, minOrders: 0 });
  const options: SiegeOptions = {
    command: 'npm run chaos -- --seed=5',
    schedule,
    accused: {
      substitutes: { payments: 'lab/gallery/recipes/nothing-remembered.ts' },
      config,
      isExpectedToFail: false,
      examine: async () => {},
    },
    patience: { settleS: 15, drainMs: 45_000, stalledMs: 20_000 },
    out,
    signal: new AbortController().signal,
    progress: () => {},
    onPhase: () => {},
    onFault: () => {},
  };
  const report = await besiege(options);
  assert.equal(report.verdict, 'violated');
  assert.equal(report.ok, false);

  const kept = (...path: string[]): string[] => readdirSync(join(out, ...path));
  const sizeOf = (...path: string[]): number => statSync(join(out, ...path)).size;
  assert.ok(sizeOf('ledger.tsv') > 10_000);
  assert.ok(kept('logs').some((file) => file.includes('payments-1') && sizeOf('logs', file) > 0));
  for (const table of ['orders-public.orders', 'orders-twiceproof.outbox', 'payments-public.charges']) {
    const file = kept('dump').find((name) => name.startsWith(table));
    assert.ok(file && sizeOf('dump', file) > 1_000, `${table} among ${kept('dump').join(' ')}`);
  }
  assert.ok(sizeOf('recon', 'messages.tsv') > 10_000);
  const read = (file: string): unknown => JSON.parse(readFileSync(join(out, file), 'utf8'));
  assert.deepEqual((read('report.json') as typeof report).reasons, report.reasons);
  assert.ok((read('schedule.json') as Schedule).faults.some((fault) => 'outcome' in fault));

  await findFewer(options, 1);
  const shrunk = read('shrunk.json') as Schedule;
  assert.ok(shrunk.faults.length < schedule.faults.length);
  assert.equal(shrunk.seed, schedule.seed);
});
