import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { beginRun } from '@twiceproof/infra/run';
import pg from 'pg';
import { startSystem } from './system.ts';

const run = await beginRun('system-test');
const signal = new AbortController().signal;
const system = await startSystem({ run, brokers: 1, proxied: true, signal, progress() {} });
const payments = new pg.Pool({ connectionString: system.databases.payments, max: 1 });
payments.on('error', () => {}); // The server is killed.
after(async () => {
  await payments.end();
  await system.close();
  await run.end();
});
await system.untilUp(60_000);

test('an order that is taken at a door is charged', async () => {
  await charged(await order());
});

test('whatever is killed comes back at its address, is counted, and the system goes on', async () => {
  const pids = new Map(system.kept.map(({ name, pid }) => [name, pid]));
  for (const { role } of system.programs) process.kill(pids.get(role)!, 'SIGKILL');
  process.kill(pids.get('postgres')!, 'SIGKILL');
  process.kill(pids.get('broker-1')!, 'SIGKILL');
  await eventually(async () => system.kept.every(({ restarts }) => restarts > 0), 'all are started again');
  await system.untilUp(60_000);
  for (const { name, pid } of system.kept) assert.notEqual(pid, pids.get(name), name);
  await charged(await order());
});

test('the programs speak to the servers through the wires', () => {
  for (const [name, { counts }] of system.wires!.all) {
    if (!name.endsWith('grpc')) assert.ok(counts.bytes['to-server'] > 0, name);
  }
});

test('told to stop, all programs end well', async () => {
  assert.deepEqual(await system.stopPrograms(), []);
});

/** Repeated with its key until it is answered, as by any client. */
async function order(): Promise<string> {
  const headers = {
    authorization: 'Bearer tenant-1',
    'content-type': 'application/json',
    'idempotency-key': randomUUID(),
  };
  let id: string | undefined;
  await eventually(async () => {
    for (const url of system.doors.http) {
      const body = JSON.stringify({ account_id: 1, amount_cents: 500 });
      const answer = await fetch(`${url}/orders`, { method: 'POST', headers, body }).catch(() => undefined);
      if (answer?.status === 201) id = ((await answer.json()) as { order_id: string }).order_id;
    }
    return id !== undefined;
  }, 'an order is taken');
  return id!;
}

async function charged(orderId: string): Promise<void> {
  await eventually(async () => {
    const { rowCount } = await payments.query('SELECT FROM charges WHERE order_id = $1', [orderId]);
    return rowCount === 1;
  }, `order ${orderId} is charged`);
}

async function eventually(condition: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + 60_000;
  let reason: unknown = '';
  for (;;) {
    try {
      if (await condition()) return;
    } catch (error) {
      reason = error;
    }
    assert.ok(performance.now() < deadline, `within 60 s: ${what} ${String(reason)}`);
    await delay(100);
  }
}
