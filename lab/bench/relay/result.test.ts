import assert from 'node:assert/strict';
import { test } from 'node:test';
import { begin, jsonText } from '../result.ts';
import { judgeRelay } from './bars.ts';
import { estimatedS, caseNames, scales } from './cases.ts';
import { exampleRelayRound } from './example-round.ts';
import type { HeldRun } from './held.ts';
import { plotRelay } from './plot.ts';
import { relayReport } from './report.ts';
import { relayResult, type RelayResult } from './result.ts';

const held: HeldRun = {
  perSecond: 2_000,
  firstUs: 20,
  lastUs: 60,
  lastPerSecond: 1_990,
  lagRows: 5,
  deadTuples: 40_000,
};

function example(
  rounds = [exampleRelayRound(), exampleRelayRound({ relay: 12_000 }), exampleRelayRound()],
): RelayResult {
  const call = { command: 'npm run bench -- relay --seed 7', seed: 7, scale: scales.quick };
  const series: RelayResult['series'] = rounds.map(() => [
    [0, 10, 5],
    [0.25, 20_000, 900],
    [0.5, 30, 8],
  ]);
  const versions = { postgres: '18.4', kafka: '4.3.1' };
  const measured = { rounds, series, held: { ours: held, textbook: held, peer: held }, versions };
  return relayResult(begin(), call, measured, judgeRelay(rounds, scales.quick));
}

test('the result says how it came about, and fails with a bar', () => {
  const result = example();
  assert.equal(result.pass, true);
  assert.equal(result.median.drain['1x1000']?.perSecond, 20_000);
  assert.equal(example([exampleRelayRound({ p99Ms: 90 })]).pass, false);
  assert.deepEqual(JSON.parse(jsonText(result)), JSON.parse(JSON.stringify(result)));
});

test('the report has a line for each program, each bar and each round', () => {
  const text = relayReport(example());
  for (const name of [
    'ceiling: from memory, batches of 200',
    'relay: 1 shard, batches of 1000',
    'textbook relay, batches of 1000',
  ]) {
    assert.ok(text.includes(name), name);
  }
  assert.match(text, /pg-transactional-outbox, replication +200 +200 200 200 /);
  assert.match(text, /ceiling, batches of 1000 +bar +0\.667 +>= 0\.6 +pass +0\.667 0\.4 0\.667\n/);
  assert.match(text, /a transaction that stays open for 18 s\n.*\n +relay +2000 +20 +60 +1990 +5 +40000\n/);
  assert.match(text, /burst of 3 times the limit \(60000\/s\) +57000 /);
  assert.doesNotMatch(text, /NOTE/);
  const disturbed = exampleRelayRound();
  disturbed.steady!.otherCores = 0.9;
  assert.match(relayReport(example([disturbed])), /NOTE: something else kept up to 0\.9 cores busy/);
});

test('a burst that could not be written as fast as it was wanted is told, with what it was', () => {
  const slow = exampleRelayRound();
  slow.steady!.bursts[3]!.writtenPerSecond = 38_000; // Of 60,000.
  const text = relayReport(example([exampleRelayRound(), slow, exampleRelayRound()]));
  assert.match(text, /NOTE: the burst of 3 times the limit was written at 2\.85 1\.90 2\.85 times/);
  assert.doesNotMatch(text, /NOTE: the burst of 2 times/);
  assert.doesNotMatch(relayReport(example([{ ceiling: {}, drain: {}, textbook: {}, peer: {} }])), /NOTE/);
});

test('what was measured again is told, with what came out at first', () => {
  const [first, second] = [exampleRelayRound({ p99Ms: 90 }).steady!, exampleRelayRound({ p99Ms: 50 }).steady!];
  const disturbed = [{ ...first, stolenShare: 0.09, attempt: 1 }];
  const round = { ...exampleRelayRound(), steady: { ...second, stolenShare: 0.02, attempt: 2, disturbed } };
  const result = example([round]);
  assert.ok(result.pass, 'the least disturbed counts');
  assert.match(
    relayReport(result),
    /disturbed 1 windows of the relay beside writers.*\n.*p99 at 1000 rows\/s .* first time: 90 ms\.\n.*1 of those that count were still/,
  );
});

test('the plot has the lag of each round over time, inside its frame', () => {
  const svg = plotRelay(example());
  assert.match(svg, /^<svg [^]*<\/svg>\n$/);
  assert.ok(!/NaN|undefined|Infinity/.test(svg));
  const lines = [...svg.matchAll(/<path d="(M[\d. ]+L[^"]+)" fill="none"/g)].map(([, path]) => path!);
  assert.equal(lines.length, 2 * 3);
  for (const path of lines) {
    for (const [, x] of path.matchAll(/[ML]([\d.]+) /g)) assert.ok(Number(x) >= 250 && Number(x) <= 870);
  }
  assert.match(plotRelay(example([{ ceiling: {}, drain: {}, textbook: {}, peer: {} }])), /<\/svg>/);
});

test('quick is planned to end within its 5 minutes', () => {
  assert.ok(estimatedS(scales.quick, caseNames) < 300, `${estimatedS(scales.quick, caseNames)} s`);
  assert.ok(estimatedS(scales.quick, ['held']) < estimatedS(scales.quick, ['held', 'drain']));
});
