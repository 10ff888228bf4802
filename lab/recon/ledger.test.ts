import assert from 'node:assert/strict';
import { test } from 'node:test';
import { linesOf, openLedger } from './ledger.ts';
import { Undecided } from './undecided.ts';
import { ledgerHead } from './run-under-test.ts';
import { withLedger } from './world-under-test.ts';

async function linesIn(text: string, kind: 'i' | 'o'): Promise<string> {
  return withLedger(text, async (path) => {
    const chunks: Buffer[] = [];
    for await (const chunk of linesOf(await openLedger(path), kind)) chunks.push(chunk);
    return Buffer.concat(chunks).toString();
  });
}

test('the lines of one kind; a last line without its end does not count', async () => {
  const text = `${ledgerHead}i\t1\no\t1\ni\t2\ni\t3`;
  assert.equal(await linesIn(text, 'i'), 'i\t1\ni\t2\n');
  assert.equal(await linesIn(text, 'o'), 'o\t1\n');
  assert.equal(await linesIn(ledgerHead, 'o'), '');
});

test('lines that lie across the chunks in which a file is read', async () => {
  const lines = Array.from({ length: 30_000 }, (_, n) => `${n % 3 === 0 ? 'o' : 'i'}\t${n}\t${'x'.repeat(n % 200)}\n`);
  const text = ledgerHead + lines.join('');
  assert.ok(text.length > 3 * 1024 * 1024);
  assert.equal(await linesIn(text, 'i'), lines.filter((line) => line.startsWith('i')).join(''));
});

test('what is appended after it was opened is left for the next time', async () => {
  await withLedger(`${ledgerHead}i\t1\n`, async (path) => {
    const ledger = await openLedger(path);
    const { appendFile } = await import('node:fs/promises');
    await appendFile(path, 'i\t2\n');
    const chunks: Buffer[] = [];
    for await (const chunk of linesOf(ledger, 'i')) chunks.push(chunk);
    assert.equal(Buffer.concat(chunks).toString(), 'i\t1\n');
  });
});

for (const head of [
  '',
  'i\t1\n',
  '# not json\n',
  '# {"ledger":1}\n',
  '# {"ledger":2}\n',
  '# {"ledger":2,"principal":"t"}\n',
]) {
  test(`not a ledger: ${JSON.stringify(head)}`, async () => {
    await assert.rejects(linesIn(head, 'i'), Undecided);
  });
}
