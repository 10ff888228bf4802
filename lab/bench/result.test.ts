import assert from 'node:assert/strict';
import { test } from 'node:test';
import { judge } from './bars.ts';
import { scales } from './cases.ts';
import { exampleRound } from './example-round.ts';
import { plotEdge } from './plot.ts';
import { reportText } from './report.ts';
import { begin, edgeResult, jsonText, type EdgeResult } from './result.ts';
import { errorsIn } from './server.ts';

function example(
  rounds = [exampleRound(), exampleRound({ group: 2_000 }), exampleRound({ group: 2_000 })],
): EdgeResult {
  const call = { command: 'npm run bench -- edge --seed 7', seed: 7, scale: scales.full };
  return edgeResult(begin(), call, { rounds, keysBefore: 13_000_000, postgresVersion: '18.4' }, judge(rounds));
}

test('the result says how it came about, and fails with a bar', () => {
  const result = example();
  assert.equal(result.pass, false);
  assert.match(result.commit, /^[0-9a-f]{40}\+?$|^unknown$/);
  assert.equal(result.environment.node, process.version);
  assert.equal(result.median.edge.group?.throughput.okPerSecond, 2_000);
  assert.equal(example([exampleRound()]).pass, true);
});

test('an aim that is missed fails nothing', () => {
  const round = exampleRound();
  round.edge.group!.latency['10000']!.p99Ms = 99;
  const { pass, bars } = example([round]);
  assert.deepEqual([pass, bars.filter((bar) => !bar.pass).map(({ kind }) => kind)], [true, ['aim']]);
});

test('the file can be read back, is small, and has short things on one line', () => {
  const result = example();
  const text = jsonText(result);
  assert.deepEqual(JSON.parse(text), JSON.parse(JSON.stringify(result)));
  assert.ok(text.length < 100_000, `${text.length} bytes`);
  assert.ok(text.split('\n').every((line) => line.length <= 120 || line.includes('"cpu":')));
  assert.match(
    text,
    /\n {8}"throughput": \{\n.*\n.*\n.*\n {10}"cpuUs": \{ "orders": 100, "postgres": 50, "load": 25 \},\n/,
  );
  assert.equal(jsonText({ a: [], b: {}, c: [1, [2]] }), '{\n  "a": [],\n  "b": {},\n  "c": [\n    1,\n    [2]\n  ]\n}');
});

test('the report has a line for each case and each bar, and every figure of the bars', () => {
  const text = reportText(example());
  for (const name of ['no-database', 'plain-insert', 'outbox-only', 'handler', 'group', 'advisory lock']) {
    assert.ok(text.includes(name), name);
  }
  assert.match(text, /over that of the plain insert +bar +0\.667 +>= 2\.5 +FAIL +2\.667 0\.667 0\.667\n/);
  assert.doesNotMatch(text, /NOTE/);
  const disturbed = exampleRound();
  disturbed.edge.handler!.throughput.otherCores = 0.8;
  disturbed.edge.group!.throughput.okPerSecond = 24_000;
  const { latency } = disturbed.edge.group!;
  const counted = latency['5000']!;
  latency['5000'] = { ...counted, attempt: 2, disturbed: [{ ...counted, attempt: 1, p99Ms: 77.7 }] };
  const notes = reportText(example([disturbed]));
  assert.match(notes, /NOTE: the host disturbed 1 windows/);
  assert.match(notes, /NOTE: p99 as it was measured the first time: 77\.7 ms\./);
  assert.match(notes, /NOTE: something else kept up to 0\.8 cores busy/);
  assert.match(notes, /NOTE: group could answer all that was offered/);
});

test('the plot has a bar for each case, and dots for each round inside the frame', () => {
  const svg = plotEdge(example());
  assert.match(svg, /^<svg [^]*<\/svg>\n$/);
  assert.ok(!/NaN|undefined|Infinity/.test(svg));
  // A dot for each round: of 5 cases, and of three percentiles for 6 rates and 4 halves of the hot keys.
  const dots = [...svg.matchAll(/<circle cx="([\d.]+)"/g)].map(([, x]) => Number(x));
  assert.equal(dots.length, 3 * 5 + 3 * 3 * (6 + 4));
  assert.ok(dots.every((x) => x >= 250 && x <= 870));
  assert.match(plotEdge(example([{ edge: {}, hot: {} }])), /<\/svg>/);
});

test('errors in the server log are counted by SQLSTATE', () => {
  const log = [
    '2026-01-01 10:00:00.000 UTC [12] 40P01 ERROR:  deadlock detected',
    '2026-01-01 10:00:00.000 UTC [12] 40P01 DETAIL:  Process 12 waits ...',
    '2026-01-01 10:00:00.000 UTC [12] 40P01 STATEMENT:  SELECT [1] 40001 ERROR',
    '2026-01-01 10:00:01.000 UTC [7] 00000 LOG:  checkpoint starting: time',
    '2026-01-01 10:00:02.000 UTC [13] 40001 ERROR:  could not serialize access',
    '2026-01-01 10:00:03.000 UTC [14] 40P01 ERROR:  deadlock detected',
  ].join('\n');
  assert.deepEqual(errorsIn(log), { '40P01': 2, '40001': 1 });
});
