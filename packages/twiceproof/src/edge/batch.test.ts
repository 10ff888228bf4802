import assert from 'node:assert/strict';
import { test } from 'node:test';
import { settleOrSplit } from './batch.ts';
import type { Entry } from './group-queue.ts';

const intent = { principal: 'p', operation: 'o', key: 'k', requestHash: '', hashVersion: 1 };
const batch: Entry<number>[] = Array.from({ length: 10 }, (_, n) => ({ hash: String(n), intent, command: n }));

async function failedFor(code: string): Promise<number[]> {
  const settled = await settleOrSplit(batch, 1_000, async (part) => {
    if (part.some(({ command }) => command === 7)) throw Object.assign(new Error('failed'), { code });
    return part.map(() => ({ outcome: 'mismatch' }));
  });
  return settled.flatMap((each, n) => (each instanceof Error ? [n] : []));
}

test('a bad value, a statement that took too long and a file that is not there are the fault of one', async () => {
  for (const code of ['23514', '57014', 'ENOENT']) assert.deepEqual(await failedFor(code), [7], code);
});

test("a server that cannot be reached is nobody's fault, and is not asked again for each half", async () => {
  for (const code of ['57P01', 'ECONNREFUSED']) assert.equal((await failedFor(code)).length, 10, code);
});
