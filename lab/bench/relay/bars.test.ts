import assert from 'node:assert/strict';
import { test } from 'node:test';
import { judgeRelay } from './bars.ts';
import { scales } from './cases.ts';
import { exampleRelayRound, type Changed } from './example-round.ts';

function failed(...rounds: Changed[]): string[] {
  return judgeRelay(rounds.map(exampleRelayRound), scales.quick)
    .filter(({ pass }) => !pass)
    .map(({ name }) => name);
}

test('every bar of the issue is there, and good figures pass', () => {
  const bars = judgeRelay([exampleRelayRound(), exampleRelayRound(), exampleRelayRound()], scales.quick);
  const wanted = '>= 0.6, >= 0.6, < 0.333, >= 10, < 20, < 60, < 50, < 250, < 6, < 9, none';
  assert.equal(bars.map(({ target }) => target).join(', '), wanted);
  assert.ok(bars.every(({ kind, values, pass }) => kind === 'bar' && values.length === 3 && pass));
});

test('each bar fails when two rounds of three do', () => {
  const bad: [Changed, RegExp][] = [
    [{ relay: 17_000 }, /^throughput over that of the ceiling, batches of 1000$/],
    [{ postgresUs: 7 }, /^Postgres CPU/],
    [{ polling: 2_500 }, /over that of the peer/],
    [{ replication: 2_500 }, /over that of the peer/],
    [{ p50Ms: 20 }, /p50, ms$/],
    [{ p99Ms: 61 }, /p99, ms$/],
    [{ growth: 51 }, /growth, rows\/s$/],
    [{ ageMs: 251 }, /highest age, ms$/],
    [{ flatAfterBursts: 9.5 }, /after a burst of 2 .*after a burst of 3 /],
  ];
  for (const [changed, name] of bad) {
    assert.deepEqual(failed(changed, {}, {}), []);
    assert.match(failed(changed, {}, changed).join(), name);
  }
});

test('one row that did not arrive in one of three rounds is too many', () => {
  assert.deepEqual(failed({ missing: 1 }, {}, {}), ['rows that did not arrive']);
});

test('what was not run is not judged', () => {
  assert.deepEqual(judgeRelay([{ ceiling: {}, drain: {}, textbook: {}, peer: {} }], scales.quick), []);
  const { drain, textbook } = exampleRelayRound();
  const bars = judgeRelay([{ ceiling: {}, drain, peer: {}, textbook }], scales.quick);
  assert.equal(bars.length, 1);
  assert.match(bars[0]!.name, /^Postgres CPU for each message over that of the textbook relay/);
});
