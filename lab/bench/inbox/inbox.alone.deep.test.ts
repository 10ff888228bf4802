import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { EXIT, type Output } from '@twiceproof/program';
import { hearing } from '../hearing-under-test.ts';
import { canReadCpu } from '../cpu.ts';
import { batchEveryMs } from './accepting.ts';
import { inboxTargets, judgeInbox } from './bars.ts';
import { benchInbox } from './bench.ts';
import { caseNames, ways, type InboxScale } from './cases.ts';
import { benchKeys } from './keys-command.ts';
import type { InboxResult } from './result.ts';

const scale: InboxScale = {
  rounds: 1,
  consume: { messages: 3_000, ways: { 0: ways, 5: [], 30: ['set'], 100: ways }, warmS: 0.2, capS: 0.5 },
  keys: { partitioned: [2_000, 20_000], plain: 2_000, random: 2_000, batches: 5 },
  expiry: { smallDay: 500, largeDay: 5_000, repeats: 1, beforeS: 0.3, openS: 2.5 },
  latency: { warmS: 0.5, measuredS: 1, attempts: 1 },
};

/** Servers that do not run as root must reach it. */
function newDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'bench-'));
  chmodSync(directory, 0o755);
  t.after(() => rmSync(directory, { recursive: true }));
  return directory;
}

test('a tiny bench of the inbox has every figure, and a bar that is not reached fails it', async (t) => {
  if (!canReadCpu) return; // The bench itself refuses to run elsewhere than on Linux.
  const directory = newDirectory(t);
  const { said, output } = hearing();
  const absurd = { ...inboxTargets, setOverTextbook: 10_000 };
  const call = { command: 'npm run bench -- inbox', scale, only: caseNames, seed: 7, targets: absurd, directory };
  assert.equal(await benchInbox(call, output, new AbortController().signal), EXIT.failed, said.join('\n'));
  assert.deepEqual(readdirSync(directory), ['plot.svg', 'result.json']);
  const result = JSON.parse(readFileSync(join(directory, 'result.json'), 'utf8')) as InboxResult;
  requireAll(result);
  assert.equal(result.bars.length, judgeInbox(result.rounds, scale).length);
  assert.match(said.join('\n'), /over those of the textbook +bar .*>= 10000 +FAIL/);
  // How fast a shared machine happens to be is not judged here; what must never happen is.
  const never = result.bars.filter(({ target }) => target === 'none');
  assert.deepEqual(
    never.map(({ pass }) => pass),
    [true],
  );
});

function requireAll({ rounds, environment }: InboxResult): void {
  assert.match(environment.kafka ?? '', /^\d+\.\d+/);
  const [{ consume, keys, expiry, latency }] = rounds as [InboxResult['rounds'][0]];
  const { textbook, each, set } = consume!.ways;
  assert.deepEqual(
    [textbook, each, set].map((runs) => Object.keys(runs!).join()),
    ['0,100', '0,100', '0,30,100'],
  );
  for (const run of [
    consume!.discard,
    consume!.raw,
    ...[textbook, each, set].flatMap((runs) => Object.values(runs!)),
  ]) {
    assert.ok(run.perSecond > 0 && run.messages > 0 && run.wrongCharges === 0, JSON.stringify(run));
  }
  assert.deepEqual(Object.keys(keys!), ['partitioned-2000', 'partitioned-20000', 'plain-2000', 'random-2000']);
  for (const run of Object.values(keys!)) {
    assert.ok(run.insertP50Us > 0 && run.insertP50Us <= run.insertP99Us, JSON.stringify(run));
    assert.ok(run.walBytes > 100 && run.heapBytes > 50 && run.indexBytes > 30, JSON.stringify(run));
  }
  // With what the warm-up and the measurement have added: 25 batches of 500.
  assert.equal(keys!['partitioned-20000']!.keys, 32_500);
  const { small, large, loaded, open } = expiry!;
  for (const day of [small, large]) assert.ok(day.detachMs > 0 && day.detachMs <= day.expiryMs && day.deleteMs > 0);
  assert.ok(large.deleteWalBytes > 5 * small.deleteWalBytes && large.expiryWalBytes < large.deleteWalBytes);
  // So small a day may go between two accepts.
  const accepts = Math.floor(loaded.expiryMs / batchEveryMs);
  assert.ok(loaded.accepts >= accepts && loaded.longestBeforeMs > 0, JSON.stringify(loaded));
  assert.ok(loaded.messagesPerSecond > 100, JSON.stringify(loaded));
  // The keeper gave up at least once because of the transaction that stays open, and no accept stood behind it.
  assert.ok(open.passes > 1 && open.expiryMs > 2_000 && open.accepts > 50, JSON.stringify(open));
  assert.deepEqual(Object.keys(latency!.rates), ['1000', '5000']);
  for (const { p50Ms, p99Ms } of Object.values(latency!.rates)) assert.ok(p50Ms > 0 && p50Ms <= p99Ms);
}

test('a fill of many keys that was broken off is gone on with', async (t) => {
  if (!canReadCpu) return;
  const data = join(newDirectory(t), 'cluster');
  const call = { command: 'npm run bench -- inbox-keys', keys: 60_000, batches: 3, data, seed: 7 };
  const about = { ...call, targets: { ...inboxTargets, insertOverSmall: 1_000 }, directory: undefined };
  const stop = new AbortController();
  const first = hearing();
  const breakOff: Output = {
    ...first.output,
    progress: (text) => {
      first.output.progress(text);
      if (text.startsWith('bench: 0.1 M of 0.1 M keys in one table (plain)')) stop.abort();
    },
  };
  assert.equal(await benchKeys(about, breakOff, stop.signal), EXIT.failed);
  assert.match(first.said.join('\n'), /it needs \d\.\d GB in .*cluster, of which 0\.0 GB are there/);
  assert.match(first.said.join('\n'), /interrupted; nothing is written/);

  const second = hearing();
  const code = await benchKeys(about, second.output, new AbortController().signal);
  const text = second.said.join('\n');
  assert.equal(code, EXIT.ok, text);
  // Of the tables that were full nothing was filled again.
  assert.match(text, /found 60,000 of 60,000 keys in partitions/);
  assert.match(text, /found 60,000 of 60,000 keys in one table \(plain\)/);
  assert.match(text, /found 0 of 12,000 keys in one table \(random\)/);
  assert.match(text, /insert p99 with 0\.06 M keys over that with 0\.03 M +bar /);
});
