import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { openLedger } from './ledger.ts';
import { defaults, type LoadOptions } from './options.ts';
import { runLoad, type LoadRun } from './run.ts';
import { createBook, readLedger, serveGrpc, serveHttp, type Book, type Line } from './servers-under-test.ts';

interface Told {
  run: LoadRun;
  facts: Record<string, unknown>;
  lines: Line[];
}

/** Two processes with both doors, that share a book. */
async function load(book: Book, changed: Partial<LoadOptions>): Promise<Told> {
  const servers = await Promise.all([serveHttp(book), serveHttp(book), serveGrpc(book), serveGrpc(book)]);
  const directory = mkdtempSync(join(tmpdir(), 'load-'));
  try {
    const [a, b, c, d] = servers.map(({ port }) => `127.0.0.1:${port}`) as [string, string, string, string];
    const ledger = openLedger(join(directory, 'ledger'));
    const targets = { urls: [`http://${a}`, `http://${b}`], grpc: [c, d] };
    // Without a lag, changes are due before their orders are known.
    const fast = { durationS: 1.5, rate: 500, clients: 64, seed: 42, retryDelayMs: 1, statusLagMs: 0 };
    const run = await runLoad({ ...defaults, ...targets, ...fast, ...changed }, { ledger });
    ledger.close();
    return { run, ...readLedger(join(directory, 'ledger')) };
  } finally {
    await Promise.all(servers.map(({ kill }) => kill()));
    rmSync(directory, { recursive: true });
  }
}

const mix = { atOnce: 1, afterAnswer: 1, elsewhere: 1, cut: 1 };
const nothing = '\\N';
const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

test('the same seed asks the same at the same doors, whatever the order ids and times', async () => {
  const orderAt = 0;
  const asked = ({ lines }: Told): string[] =>
    lines
      .map(({ door, operation, key, attempt, target, asked: what }) =>
        [door, operation, key, attempt, target, ...what.toSpliced(orderAt, 1)].join(),
      )
      .toSorted();
  const changed = { retryRate: 0.5, statusRate: 0.3, mix };
  const [one, two] = [await load(createBook(), changed), await load(createBook(), changed)];
  assert.ok(one.lines.length > 500);
  assert.deepEqual(asked(one), asked(two));
  const other = await load(createBook(), { ...changed, seed: 43 });
  assert.notDeepEqual(asked(one), asked(other));
});

test('each line says what was asked and answered, at both doors', async () => {
  const book = createBook();
  const { run, facts, lines } = await load(book, { retryRate: 0.3, statusRate: 0.3, mix: { ...mix, cut: 0 } });
  const { counts, options } = run;
  const { ledger, seed, principal, targets, startMs, startedAt } = facts;
  assert.deepEqual([ledger, seed, principal], [3, 42, 'tenant-1']);
  assert.deepEqual(targets, [...options.urls, ...options.grpc.map((address) => `grpc://${address}`)]);
  assert.equal(new Date(startMs as number).toISOString(), startedAt);
  assert.deepEqual([counts.ok, counts.skipped, counts.errors], [counts.due, 0, 0]);
  for (const { door, operation, key, target, asked, ...outcome } of lines) {
    const [order, account, amount, status] = asked;
    assert.equal(door, Number(target) < 2 ? 'http' : 'grpc');
    assert.deepEqual([outcome.verdict, outcome.reason], ['ok', 'answered']);
    assert.match(outcome.hash, /^[0-9a-f]{16}$/);
    assert.match(outcome.orderId, uuid);
    if (operation === 'create') {
      assert.deepEqual([order, status], [nothing, nothing]);
      assert.deepEqual([outcome.orderId, outcome.version], [key, '1']);
      const wanted = { account_id: Number(account), amount_cents: Number(amount) };
      for (const one of book.asked.get(key)!) assert.deepEqual(one, wanted);
    } else {
      assert.deepEqual([account, amount], [nothing, nothing]);
      assert.ok(Number(outcome.version) >= 2);
      assert.equal(outcome.orderId, order);
      for (const one of book.asked.get(key)!) assert.deepEqual(one, { order_id: order, status });
    }
    assert.equal(outcome.code, door === 'grpc' ? '0' : operation === 'create' ? '201' : '200');
  }
  assert.equal(lines.filter(({ operation }) => operation === 'set-status').length > 100, true);
  assert.equal(run.answers.different, 0);
  const ofKeys = Object.values(Object.groupBy(lines, ({ key }) => key)).map((of) => of ?? []);
  assert.ok(
    ofKeys.some((of) => new Set(of.map(({ door }) => door)).size === 2),
    'some keys are asked at both doors',
  );
});

test('no two keys have the same account, and it is what the contract with the judge says', async () => {
  const { lines } = await load(createBook(), { retryRate: 0.3, durationS: 0.5 });
  const accounts = new Map(lines.map(({ key, asked }) => [key, Number(asked[1])]));
  assert.equal(new Set(accounts.values()).size, accounts.size);
  const nonces = new Set([...accounts.values()].map((account) => Math.floor((account - 1) / 2 ** 32)));
  const [nonce = 0] = nonces;
  assert.ok(nonces.size === 1 && nonce > 0 && nonce < 2 ** 20);
  for (const account of accounts.values()) assert.ok((account - 1) % 2 ** 32 < defaults.keys);
});

test('a call that is cut has an unknown outcome, though the server has seen it, and the retry gets the answer', async () => {
  const book = createBook();
  const { run, lines } = await load(book, {
    urls: [],
    retryRate: 0.5,
    mix: { atOnce: 0, afterAnswer: 0, elsewhere: 0, cut: 1 },
  });
  const { counts } = run;
  assert.ok(counts.cut > 50);
  assert.deepEqual([counts.unknown, counts.errors, run.unsettled], [counts.cut, 0, 0]);
  const cut = lines.filter(({ reason }) => reason === 'cut');
  assert.equal(cut.length, counts.cut);
  for (const { verdict, hash } of cut) assert.deepEqual([verdict, hash], ['unknown', nothing]);
  const seen = [...book.asked.values()].reduce((sum, { length }) => sum + length, 0);
  const seenThough = (seen - counts.ok) / counts.cut;
  assert.ok(seenThough > 0.9, `${seenThough} of the calls that were cut came to the server`);
});
