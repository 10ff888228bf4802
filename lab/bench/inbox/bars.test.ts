import assert from 'node:assert/strict';
import { test } from 'node:test';
import { judgeInbox } from './bars.ts';
import { scales } from './cases.ts';
import { exampleInboxRound, type Changed } from './example-round.ts';

function failed(...rounds: Changed[]): string[] {
  return judgeInbox(rounds.map(exampleInboxRound), scales.quick)
    .filter(({ pass }) => !pass)
    .map(({ name }) => name);
}

test('every bar of the issue is there, and good figures pass', () => {
  const bars = judgeInbox([exampleInboxRound(), exampleInboxRound(), exampleInboxRound()], scales.quick);
  const wanted = '>= 10, < 1.25, < 1.5, < 1.5, < 1.5, < 200, < 200, < 250, < 100, none';
  assert.equal(bars.map(({ target }) => target).join(', '), wanted);
  assert.ok(bars.every(({ values, pass }) => values.length === 3 && pass));
  assert.deepEqual(
    bars.filter(({ kind }) => kind === 'aim').map(({ name }) => name),
    ['time until the files of a large day are gone over a small one'],
  );
});

test('each bar fails when two rounds of three do', () => {
  const bad: [Changed, RegExp][] = [
    [{ set: 9_900 }, /^messages\/s of the set handler/],
    [{ largeP99Us: 5_000 }, /^insert p99 with 10 M keys over that with 1 M$/],
    [{ largeDetachMs: 12 }, /^time until a large day is out of the inbox/],
    [{ largeExpiryMs: 30 }, /^time until the files/],
    [{ largeWalBytes: 27_000 }, /^WAL of the expiry/],
    [{ p99Ms: 100 }, /^commit to effect at 1000 orders\/s: p99, ms$/],
    [{ fastP99Ms: 250 }, /^commit to effect at 5000 orders\/s: p99, ms$/],
  ];
  for (const [changed, name] of bad) {
    assert.deepEqual(failed(changed, {}, {}), []);
    const names = failed(changed, {}, changed);
    assert.equal(names.length, 1);
    assert.match(names[0]!, name);
  }
});

test('an accept that waits too long in one of three rounds is too many', () => {
  assert.deepEqual(failed({ longestMs: 200 }, {}, {}), ['longest accept during an expiry, ms']);
  assert.match(failed({}, { longestOpenMs: 201 }, {}).join(), /^longest accept.*beside an open transaction, ms$/);
});

test('one wrong charge in one of three rounds is too many', () => {
  const name = 'orders that were charged twice or not at all';
  assert.deepEqual(failed({ wrongCharges: 1 }, {}, {}), [name]);
  assert.deepEqual(failed({}, {}, { notCharged: 1 }), [name]);
});

test('what was not run is not judged', () => {
  assert.deepEqual(judgeInbox([{}], scales.quick), []);
  const { keys } = exampleInboxRound();
  assert.deepEqual(
    judgeInbox([{ keys: keys! }], scales.quick).map(({ name }) => name),
    ['insert p99 with 10 M keys over that with 1 M'],
  );
});

test('a fast insert is not taken for none: the quotient is of what was measured', () => {
  const round = exampleInboxRound();
  round.keys!['partitioned-1000000']!.insertP99Us = 0.5;
  round.keys!['partitioned-10000000']!.insertP99Us = 0.75;
  const bar = judgeInbox([round], scales.quick).find(({ name }) => name.startsWith('insert p99'));
  assert.deepEqual([bar?.value, bar?.pass], [1.5, false]);
});
