import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test, type TestContext } from 'node:test';
import { testDatabase } from '@twiceproof/infra/testing';
import { exchange, requestText, startOrders, statusOf } from './program-under-test.ts';

const { url } = await testDatabase();

// What is killed at its points is the program with its points armed: lab/chaos. So that must be the same program.
for (const connection of ['close', 'keep-alive'] as const) {
  test(`connection ${connection}: an answer is the same to the byte whether the points are armed or not`, async (t) => {
    await sameAnswer(
      t,
      requestText('/orders', { key: connection, body: { account_id: 1, amount_cents: 1 }, connection }),
    );
  });
}

async function sameAnswer(t: TestContext, request: string): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'orders-'));
  const passed = new Set<string>();
  const supervisor = createServer((socket) => {
    const lines = createInterface({ input: socket });
    // It may end with an answer unread, and lines tell of an error of their socket once more.
    for (const each of [socket, lines]) each.on('error', () => {});
    lines.on('line', (line) => {
      const { id, name } = JSON.parse(line) as { id: number; name: string };
      passed.add(name);
      socket.write(`${id}\n`);
    });
  });
  t.after(() => {
    supervisor.close();
    rmSync(directory, { recursive: true });
  });
  await once(supervisor.listen(join(directory, 'points')), 'listening');
  const armed = await startOrders(url, [], { TWICEPROOF_POINTS: join(directory, 'points') });
  const raw = await exchange(armed.http, request);
  await armed.stop();
  assert.equal(statusOf(raw), 201);
  assert.ok(passed.has('http:half-written'), 'it went out in two halves');
  const unarmed = await startOrders(url);
  assert.equal(await exchange(unarmed.http, request), raw);
  await unarmed.stop();
}
