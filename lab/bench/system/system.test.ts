import assert from 'node:assert/strict';
import { test } from 'node:test';
import { begin, jsonText } from '../result.ts';
import { judgeSystem } from './bars.ts';
import { estimatedS, scales } from './cases.ts';
import { cleanRecon, exampleRun, exampleSystemRound } from './example-round.ts';
import type { SystemRun } from './measure.ts';
import { plotSystem } from './plot.ts';
import { systemReport } from './report.ts';
import { systemResult, type SystemResult } from './result.ts';

function example(
  rounds = [exampleSystemRound(), exampleSystemRound(), exampleSystemRound()],
  recon = cleanRecon,
): SystemResult {
  const call = { command: 'npm run bench -- system --seed 7', seed: 7, scale: scales.quick };
  const series: SystemResult['series'] = rounds.map(() => [
    [0, 10, 5],
    [1, 400, 90],
    [2, 30, 8],
  ]);
  const versions = { postgres: '18.4', kafka: '4.3.1' };
  return systemResult(begin(), call, { rounds, series, recon, versions }, judgeSystem(rounds, recon));
}

test('every bar of the promised rate is there and passes; what is only aimed at fails nothing', () => {
  const { bars, pass } = example();
  assert.equal(pass, true);
  const ofKind = (kind: string): string => bars.flatMap((bar) => (bar.kind === kind ? [bar.target] : [])).join(', ');
  assert.equal(ofKind('bar'), '< 25, < 250, < 50, >= 0.9999, none');
  assert.equal(ofKind('aim'), '< 25, < 250, < 100, >= 0.9999');
  assert.deepEqual(
    bars.filter((bar) => !bar.pass).map(({ kind }) => kind),
    ['aim', 'aim'],
  );
});

test('each bar fails when two rounds of three do', () => {
  const bad: [Partial<SystemRun>, RegExp][] = [
    [{ p99Ms: 26 }, /^POST \/orders at 5000/],
    [{ effectP99Ms: 251 }, /^commit to effect at 5000/],
    [{ lagGrowthPerSecond: 51 }, /^growth of the lag at 5000/],
    [{ okShare: 0.99 }, /^share answered 2xx at 5000/],
  ];
  for (const [changed, name] of bad) {
    const failed = (...rounds: Partial<SystemRun>[]): string[] =>
      judgeSystem(rounds.map(exampleSystemRound), cleanRecon)
        .filter(({ kind, pass }) => kind === 'bar' && !pass)
        .map((bar) => bar.name);
    assert.deepEqual(failed(changed, {}, {}), []);
    assert.match(failed(changed, {}, changed).join(), name);
  }
});

test('one order that the reconciler finds wrong is too many, and so is a verdict that it cannot give', () => {
  assert.equal(example(undefined, { ...cleanRecon, verdict: 'violated', deltas: { lost: 1 } }).pass, false);
  assert.equal(example(undefined, { ...cleanRecon, verdict: 'undecided', reasons: ['no ledger'] }).pass, false);
});

test('the highest rate is the last before the first that does not hold', () => {
  assert.deepEqual(example().highestRate, { holds: 5_000, keepsUp: 7_000 });
  const low = exampleSystemRound();
  low.ladder['1000'] = exampleRun(1_000, { p99Ms: 30 });
  assert.deepEqual(example([low]).highestRate, { holds: 0, keepsUp: 7_000 });
});

test('the report has a line for each rate and each bar, and says what disturbed', () => {
  const text = systemReport(example());
  assert.match(text, /5000 requests\/s +4\.0 +20\.0 +40\.0 +2\.0 +40\.0 +120\.0 +20\.0 +60\.0 +100\.00 %/);
  assert.match(text, /7000 requests\/s +0\.50 +0\.10 +0\.20 +0\.40 +0\.30 +0\.20 +1\.70 +0\.05/);
  assert.match(text, /recon: clean, nothing wrong of 90000 orders, in 12 s/);
  assert.doesNotMatch(text, /NOTE/);
  assert.match(systemReport(example([exampleSystemRound({ otherCores: 0.9 })])), /NOTE: something else kept/);
  assert.match(systemReport(example([exampleSystemRound({ newLogSegments: 3 })])), /NOTE: .* 3 segments of its log/);
  const disturbed = [exampleRun(5_000, { stolenShare: 0.02, attempt: 1, p99Ms: 77 })];
  const again = systemReport(example([exampleSystemRound({ attempt: 2, disturbed })]));
  assert.match(again, /NOTE: the host disturbed 1 windows of requests at 5000 a second/);
  assert.match(again, /NOTE: p99 as it was measured the first time: 77 ms/);
});

test('the plot has the lag of each round over time, and the result can be read back', () => {
  const result = example();
  const svg = plotSystem(result);
  assert.match(svg, /^<svg [^]*<\/svg>\n$/);
  assert.ok(!/NaN|undefined|Infinity/.test(svg));
  assert.equal([...svg.matchAll(/<path d="(M[\d. ]+L[^"]+)" fill="none"/g)].length, 2 * 3);
  assert.deepEqual(JSON.parse(jsonText(result)), JSON.parse(JSON.stringify(result)));
});

test('quick is planned to end within its 5 minutes', () => {
  assert.ok(estimatedS(scales.quick) < 300, `${estimatedS(scales.quick)} s`);
});
