/** Against the real thing: two processes of Orders on one database, one of which is killed and comes back. */
import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, test } from 'node:test';
import pg from 'pg';
import { createMetrics } from '@twiceproof/program/metrics';
import { testDatabase } from '@twiceproof/infra/testing';
import { openLedger } from './ledger.ts';
import { defaults, type LoadOptions } from './options.ts';
import { resultOf } from './result.ts';
import { runLoad, type LoadRun } from './run.ts';
import { readLedger, until, type Line } from './servers-under-test.ts';

const { url: databaseUrl } = await testDatabase();
const pool = new pg.Pool({ connectionString: databaseUrl, max: 1 });
after(async () => pool.end());

interface Orders {
  child: ChildProcess;
  http: string;
  grpc: string;
}

async function startOrders(ports: string[] = ['--port=0', '--grpc-port=0']): Promise<Orders> {
  const main = join(import.meta.dirname, '../../apps/orders/main.ts');
  const args = ['--conditions=twiceproof-source', main, '--json', '--admin-port=0', ...ports];
  const env = { ...process.env, DATABASE_URL: databaseUrl };
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const [first] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  const { http, grpc } = JSON.parse(first) as Omit<Orders, 'child'>;
  return { child, http, grpc };
}

async function kill({ child }: Orders): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
}

/** A is killed once enough is answered, and started again at its addresses once requests wait for it. */
async function loadThroughKill(optionsOf: (all: Orders[]) => Partial<LoadOptions>): Promise<[LoadRun, Line[]]> {
  const directory = mkdtempSync(join(tmpdir(), 'load-'));
  const b = await startOrders();
  let a = await startOrders();
  try {
    const metrics = createMetrics();
    const read = (pattern: RegExp): number => Number(pattern.exec(metrics.text())?.[1] ?? 0);
    const ledger = openLedger(join(directory, 'ledger'));
    const often = { retryRate: 0.3, statusRate: 0.3, settleS: 30, rate: 300, durationS: 4, clients: 32 };
    const running = runLoad({ ...defaults, seed: 0, urls: [], ...optionsOf([a, b]), ...often }, { ledger, metrics });
    await until(() => read(/^load_sent_total (\d+)$/m) > 400, 'sent');
    await kill(a);
    await until(() => read(/^load_waiting_requests (\d+)$/m) > 10, 'waiting');
    const portOf = (address: string): string => address.split(':').at(-1)!;
    a = await startOrders([`--port=${portOf(a.http)}`, `--grpc-port=${portOf(a.grpc)}`]);
    const run = await running;
    ledger.close();
    return [run, readLedger(join(directory, 'ledger')).lines];
  } finally {
    await Promise.all([kill(a), kill(b)]);
    rmSync(directory, { recursive: true });
  }
}

interface Row {
  order_id: string;
  account_id: string;
  amount_cents: string;
  version: number;
}

/** What the ledger says against what the tables say, by business columns alone. */
async function compare([run, lines]: [LoadRun, Line[]]): Promise<void> {
  const { counts, unsettled, answers } = run;
  assert.deepEqual(resultOf(run, 'test').problems, []);
  assert.deepEqual([unsettled, counts.dropped, answers.different], [0, 0, 0]);
  const { rows } = await pool.query<Row>(
    'SELECT order_id, account_id::text, amount_cents::text, version::integer FROM orders',
  );
  const ofAccount = Map.groupBy(rows, ({ account_id }) => account_id);
  const ok = lines.filter(({ verdict }) => verdict === 'ok');
  const changesOf = new Map<string, Map<string, string>>();
  const accounts = new Set<string>();
  for (const { operation, key, asked, orderId, version, status } of ok) {
    const [changed = '', account = '', amount, to] = asked;
    assert.equal(status, operation === 'create' ? 'created' : to);
    if (operation === 'create') {
      accounts.add(account);
      const made = ofAccount.get(account) ?? [];
      assert.deepEqual(
        made.map((row) => [row.order_id, row.amount_cents]),
        [[orderId, amount]],
      );
    } else {
      assert.equal(orderId, changed);
      const versions = changesOf.get(changed) ?? new Map<string, string>();
      assert.equal(versions.get(key) ?? version, version, 'the same key, the same version');
      changesOf.set(changed, versions.set(key, version));
    }
  }
  assert.ok(accounts.size > 300 && changesOf.size > 20, `${accounts.size} orders, ${changesOf.size} of them changed`);
  for (const { order_id, account_id, version } of rows) {
    if (!accounts.has(account_id)) continue;
    const versions = [...(changesOf.get(order_id) ?? new Map<string, string>()).values()].map(Number);
    const each = Array.from({ length: version - 1 }, (_, n) => n + 2);
    assert.deepEqual(
      versions.toSorted((one, other) => one - other),
      each,
    );
  }
}

const doorsOf: Record<string, (all: Orders[]) => Partial<LoadOptions>> = {
  http: (all) => ({ urls: all.map(({ http }) => http), seed: 1 }),
  grpc: (all) => ({ grpc: all.map(({ grpc }) => grpc), seed: 2 }),
  'grpc and http': (all) => ({ urls: all.map(({ http }) => http), grpc: all.map(({ grpc }) => grpc), seed: 3 }),
};

for (const [doors, optionsOf] of Object.entries(doorsOf)) {
  test(`over ${doors}: what the ledger says is in the tables, once`, async () => {
    const told = await loadThroughKill(optionsOf);
    const used = new Set(told[1].map(({ door }) => door));
    assert.equal([...used].toSorted().join(' and '), doors);
    await compare(told);
  });
}
