import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import pg from 'pg';
import { testDatabase } from '@twiceproof/infra/testing';
import { examine } from './examine.ts';

const { url } = await testDatabase();
const client = new pg.Client(url);
await client.connect();
const directory = mkdtempSync(join(tmpdir(), 'examine-'));
after(async () => {
  await client.end();
  rmSync(directory, { recursive: true });
});

const beginMs = Date.UTC(2026, 0, 1);
const orderId = (n: number): string => `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`;
const messageId = (n: number): string => `01990000-0000-7000-8000-${String(n).padStart(12, '0')}`;

test('what went wrong first is told by its own time: that of the event, and not that of its order', async () => {
  await client.query(
    `CREATE SCHEMA twiceproof;
     CREATE TABLE twiceproof.outbox (id bigint, msg_id uuid, aggregate_id text, event_type text, payload bytea, created_at timestamptz);
     CREATE TABLE effects (id bigint, msg_id uuid)`,
  );
  // An order a second, and after ten of them the first one is changed.
  for (let n = 1; n <= 11; n += 1) {
    const [order, version, type] = n === 11 ? [1, 2, 'order.status_changed'] : [n, 1, 'order.created'];
    const payload = JSON.stringify({ version, status: version === 1 ? 'created' : 'paid' });
    await client.query(
      `INSERT INTO twiceproof.outbox VALUES ($1, $2, $3, $4, convert_to($5, 'utf8'), to_timestamp($6 / 1000.0))`,
      [n, messageId(n), orderId(order), type, payload, beginMs + n * 1_000],
    );
  }
  await client.query('INSERT INTO effects VALUES (1, $1)', [messageId(10)]);
  const ledger = join(directory, 'ledger.tsv');
  writeFileSync(ledger, `# ${JSON.stringify({ startMs: beginMs })}\ni\t1\t4500000\thttp\tcreate\tkey-5\n`);
  const first = async (ids: string[]): Promise<unknown> => {
    const strikes = [{ atMs: beginMs + 12_500, fault: { kind: 'kill' as const, role: 'relay-1', atMs: 0 } }];
    const verdict = {
      verdict: 'violated' as const,
      counts: {},
      deltas: { lost: { count: 1, ids } },
      reasons: [],
      tookMs: 1,
    };
    const databases = { orders: url, payments: url };
    const { first: found, lastOrders } = await examine({ databases, ledger, verdict, strikes }, ['relay']);
    assert.deepEqual(lastOrders, { written: 10, done: 1 });
    return found && [found.orders, found.fault];
  };
  assert.deepEqual(await first([`topic:${orderId(1)}/2`]), [10, '1.5 s later: kill relay-1']);
  assert.deepEqual(await first([`status:${orderId(1)}/paid`]), [10, '1.5 s later: kill relay-1']);
  assert.deepEqual(await first([`topic:${orderId(1)}/2`, `topic:${orderId(4)}/1`]), [4, '8.5 s later: kill relay-1']);
  assert.deepEqual(await first([`charge:${orderId(7)}`]), [7, '5.5 s later: kill relay-1']);
  assert.deepEqual(await first([`effect:payments/${messageId(3)}`]), [3, '9.5 s later: kill relay-1']);
  assert.deepEqual(await first(['order:key-5']), [4, '8.0 s later: kill relay-1']);
  assert.equal(await first([]), undefined);
});
