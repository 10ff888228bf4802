/** How fast it is, on a run of many orders that is made by SQL. It prints what it measured, and asserts the verdict only. */
import assert from 'node:assert/strict';
import { createWriteStream, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { after, test } from 'node:test';
import pg from 'pg';
import { copyOut } from './copy.ts';
import { court, found } from './judge-under-test.ts';
import { ledgerHead, partitions, tenant, type Run } from './run-under-test.ts';
import { openProducer, produce, type Place } from './world-under-test.ts';

const orders = 300_000;
const { emptyPlace, verdict, ordersUrl, close } = await court();
after(close);

/** Every fifth order is changed once; every seventh request is sent twice. */
const events = `(SELECT n, v, ('01990000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS order_id,
  ('01990000-000' || v || '-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS msg_id, 7 * (1::bigint << 32) + n + 1 AS account_id,
  100 + n % 900 AS amount_cents FROM generate_series(1, ${orders}) AS n, generate_series(1, CASE WHEN n % 5 = 0 THEN 2 ELSE 1 END) AS v) AS e`;

async function fill({ orders: here, payments, brokers, topic }: Place): Promise<void> {
  await here.query(
    `INSERT INTO orders SELECT order_id, '${tenant}', account_id, amount_cents,
       CASE WHEN n % 5 = 0 THEN 'paid' ELSE 'created' END, CASE WHEN n % 5 = 0 THEN 2 ELSE 1 END FROM ${events} WHERE v = 1`,
  );
  await here.query(
    `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload)
     SELECT 0, $1, order_id::text, msg_id, CASE v WHEN 1 THEN 'order.created' ELSE 'order.status_changed' END,
       convert_to(CASE v WHEN 1 THEN json_build_object('order_id', order_id, 'account_id', account_id, 'amount_cents',
         amount_cents, 'status', 'created', 'version', 1) ELSE json_build_object('order_id', order_id, 'status', 'paid',
         'version', 2) END::text, 'utf8') FROM ${events} ORDER BY v, n`,
    [topic],
  );
  await here.query(
    `INSERT INTO twiceproof.idempotency_keys (key_hash, principal, operation, idem_key, request_hash, hash_version)
     SELECT msg_id, '${tenant}', CASE v WHEN 1 THEN 'orders.create' ELSE 'orders.set-status' END, 'key-' || n || '-' || v, '', 1
     FROM ${events}`,
  );
  await payments.query(`INSERT INTO twiceproof.inbox SELECT msg_id, 'payments', 1 FROM ${events}`);
  await payments.query(
    `INSERT INTO effects (consumer, msg_id, order_id, version) SELECT 'payments', msg_id, order_id, v FROM ${events} ORDER BY v, n`,
  );
  await payments.query(
    `INSERT INTO order_states SELECT DISTINCT ON (order_id) order_id, CASE v WHEN 1 THEN 'created' ELSE 'paid' END, v
     FROM ${events} ORDER BY order_id, v DESC`,
  );
  await payments.query(`INSERT INTO charges SELECT msg_id, order_id, amount_cents FROM ${events} WHERE v = 1`);
  const producer = openProducer(brokers);
  const page = `SELECT aggregate_id AS key, convert_from(payload, 'utf8') AS value, msg_id, event_type, id
    FROM twiceproof.outbox WHERE id > $1 ORDER BY id LIMIT 10000`;
  for (let last = '0'; ;) {
    const { rows } = await here.query<{ key: string; value: string; msg_id: string; event_type: string; id: string }>(
      page,
      [last],
    );
    if (rows.length === 0) break;
    last = rows.at(-1)!.id;
    const records: Run['records'] = rows.map(({ key, value, msg_id, event_type }) => ({
      partition: Number.parseInt(key.slice(-4), 16) % partitions,
      key,
      value,
      headers: { ce_id: msg_id, ce_type: event_type },
      atMs: Date.now(),
    }));
    await produce(producer, topic, records);
  }
  await producer.close();
}

async function writeLedger(path: string): Promise<void> {
  const client = new pg.Client(ordersUrl);
  await client.connect();
  const file = createWriteStream(path);
  file.write(ledgerHead);
  const lines = `SELECT unnest(ARRAY[concat_ws(E'\\t', 'i', i, i, 'http', operation, key, '0', '0', wanted, account, cents, status),
      concat_ws(E'\\t', 'o', i, i + 5, 'ok', '201', 'h' || key, order_id, v,
        CASE v WHEN 1 THEN 'created' ELSE 'paid' END, '\\N')])
    FROM (SELECT *, row_number() OVER () AS i, 'key-' || n || '-' || v AS key,
      CASE v WHEN 1 THEN 'create' ELSE 'set-status' END AS operation, CASE v WHEN 1 THEN '\\N' ELSE order_id::text END AS wanted,
      CASE v WHEN 1 THEN account_id::text ELSE '\\N' END AS account, CASE v WHEN 1 THEN amount_cents::text ELSE '\\N' END AS cents,
      CASE v WHEN 1 THEN '\\N' ELSE 'paid' END AS status
      FROM ${events}, generate_series(0, CASE WHEN n % 7 = 0 THEN 1 ELSE 0 END)) AS asked`;
  // With quotes that do not occur, a CSV of one column is the text as it is.
  await pipeline(copyOut(client, `COPY (${lines}) TO STDOUT (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')`), file);
  await client.end();
}

/** CPU seconds of this process and of the judge's sessions, whose ids are known a moment after they are asked for. */
function cpuMeter(place: Place): () => number {
  let pids: number[] = [];
  const asked = (pool: pg.Pool): void => {
    pool
      .query<{ pid: number }>(`SELECT pid FROM pg_stat_activity WHERE application_name = 'recon'`)
      .then(({ rows }) => {
        pids = [...new Set([...pids, ...rows.map(({ pid }) => pid)])];
      })
      .catch(() => {});
  };
  let sessions = 0;
  return () => {
    if (pids.length < 2) asked(place.orders);
    const { user, system } = process.cpuUsage();
    try {
      // The 14th and 15th field, in hundredths of a second; the second is a name that may hold blanks.
      const fields = pids.map((pid) => readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' '));
      sessions = fields.reduce((sum, one) => sum + (Number(one[11]) + Number(one[12])) / 100, 0);
    } catch {
      // They have ended.
    }
    return (user + system) / 1e6 + sessions;
  };
}

test(`${orders.toLocaleString('en')} orders`, async (t) => {
  const place = await emptyPlace();
  await fill(place);
  const directory = await mkdtemp(join(tmpdir(), 'twiceproof-recon-'));
  try {
    const path = join(directory, 'ledger.tsv');
    await writeLedger(path);
    const cpu = cpuMeter(place);
    const steps: { phase: string; atMs: number; cpuS: number }[] = [];
    const beforeBytes = process.memoryUsage().rss;
    let [rows, peakBytes] = [0, 0];
    const step = (phase: string): void => {
      if (phase !== steps.at(-1)?.phase) steps.push({ phase, atMs: performance.now(), cpuS: cpu() });
    };
    const report = await verdict('', place, {
      ledgers: [path],
      signal: AbortSignal.timeout(600_000),
      onProgress: (now) => {
        rows = now.rows;
        peakBytes = Math.max(peakBytes, process.memoryUsage().rss);
        step(now.phase);
      },
    });
    step('end');
    for (const [n, { phase, atMs, cpuS }] of steps.slice(0, -1).entries()) {
      const { atMs: endMs, cpuS: endS } = steps[n + 1]!;
      const name = phase.replace(directory, '').padEnd(32);
      t.diagnostic(`${name} ${((endMs - atMs) / 1_000).toFixed(2)} s, CPU ${(endS - cpuS).toFixed(2)} s`);
    }
    const [seconds, cpuS] = [report.tookMs / 1_000, steps.at(-1)!.cpuS - steps[0]!.cpuS];
    const rate = (what: string, count: number): string =>
      `${count} ${what}: ${Math.round(count / seconds)}/s, ${((cpuS / count) * 1e6).toFixed(1)} us of CPU each`;
    t.diagnostic(`${rate('rows', rows)}; ${rate('orders', orders)}`);
    t.diagnostic(`${seconds} s, RSS from ${Math.round(beforeBytes / 1e6)} to ${Math.round(peakBytes / 1e6)} MB`);
    assert.deepEqual([report.verdict, report.reasons, found(report)], ['clean', [], {}]);
    assert.equal(report.counts['orders'], orders);
  } finally {
    await rm(directory, { recursive: true });
  }
});
