import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Status } from './status.ts';
import { createScreen, picture, plainLine } from './terminal.ts';

const status: Status = {
  at: '2026-01-01T10:11:21.000Z',
  upS: 12,
  processes: [
    { name: 'postgres', kind: 'postgres', pid: 11, state: 'running', restarts: 0 },
    { name: 'relay-1', kind: 'relay', pid: 12, state: 'starting', restarts: 3 },
  ],
  rates: { requests: 20, orders: 13, replays: 7, published: 13, charges: 11, duplicates: 2 },
  lag: { messages: 4, oldestS: 0.2 },
  held: 0,
  p99Ms: { request: 8.1, appendToBroker: 20, commitToEffect: undefined },
  invariant: undefined,
};
const invariant = {
  verdict: 'violated' as const,
  checkedAt: '2026-01-01T10:11:12.000Z',
  tookMs: 5,
  intents: 9,
  orders: 8,
  others: 0,
  charges: 10,
  doubled: 2,
  lost: 1,
  reasons: ['two charges'],
};

test('both forms say who is away, what passes, and what the judge has found', () => {
  for (const text of [picture(status), plainLine(status)]) {
    assert.match(text, /relay-1/);
    assert.match(text, /20 requests/);
    assert.match(text, /not yet judged/);
  }
  for (const text of [picture({ ...status, invariant }), plainLine({ ...status, invariant })]) {
    assert.match(
      text,
      /violated: 9 intents, 8 orders, 10 charges, 2 doubled, 1 lost \(two charges\)[;\n] *read 9 s ago, at 10:11:12 UTC/,
    );
  }
});

test('what could not be compared is not told as none', () => {
  const reasons = ['a partition is away'];
  const told = { ...invariant, verdict: 'undecided' as const, doubled: undefined, lost: undefined, reasons };
  const line = /undecided: 9 intents, 8 orders, 10 charges, \? doubled, \? lost \(a partition is away\)/;
  assert.match(picture({ ...status, invariant: told }), line);
});

test('orders of others are told where there are any, and are nothing wrong', () => {
  const told = plainLine({ ...status, invariant: { ...invariant, verdict: 'clean', others: 3 } });
  assert.match(told, /clean: 9 intents, 8 orders \(and 3 of others\), 10 charges/);
});

test('a picture is written over the one before, and no line is wider than the terminal', () => {
  const written: string[] = [];
  const screen = createScreen(
    (text) => written.push(text),
    () => 40,
  );
  screen(status);
  screen(status);
  const lines = written[0]!.split('\n').length - 1;
  assert.ok(written[1]!.startsWith(`\x1b[${lines}A\x1b[J`));
  assert.equal(written[1]!.slice(`\x1b[${lines}A\x1b[J`.length), written[0]);
  assert.ok(written[0]!.split('\n').every((line) => line.length <= 40));
});
