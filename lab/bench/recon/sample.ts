/**
 * What a run of many orders leaves behind, made by SQL: every fifth order is changed once, and every seventh request is
 * sent twice. All of it is as it should be.
 */
import { createWriteStream, readFileSync } from 'node:fs';
import { once } from 'node:events';
import { join } from 'node:path';
import { ProduceAcks, Producer, type MessageToProduce } from '@platformatic/kafka';
import pg from 'pg';
import type { Database } from '../relay/world.ts';

export interface Sample {
  orders: number;
  databases: { orders: Database; payments: Database };
  brokers: string;
  topic: string;
  /** A file that is made. */
  ledger: string;
  signal: AbortSignal;
  progress(text: string): void;
}

/** As the world makes its topics. */
const partitions = 3;
const tenant = 'tenant-1';
const programs = join(import.meta.dirname, '../../../apps');
/** Of the topic and of the ledger, at a time. */
const pageRows = 10_000;

export async function makeSample(sample: Sample): Promise<void> {
  const { databases, signal, progress } = sample;
  const steps: [string, () => Promise<unknown>][] = [
    ['orders and their outbox', async () => fillOrders(databases.orders.client, sample)],
    ['inbox, effects and charges', async () => fillPayments(databases.payments.client, sample)],
    ['the topic', async () => fillTopic(databases.orders.url, sample)],
    ['the ledger', async () => writeLedger(databases.orders.url, sample)],
  ];
  for (const [name, step] of steps) {
    signal.throwIfAborted();
    progress(`bench: making ${name} of ${sample.orders.toLocaleString('en')} orders`);
    await step();
  }
}

/** Versions `v` of the orders `n`. */
function events({ orders }: Sample): string {
  return `(SELECT n, v, ('01990000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS order_id,
    ('01990000-000' || v || '-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS msg_id,
    7 * (1::bigint << 32) + n + 1 AS account_id, 100 + n % 900 AS amount_cents
    FROM generate_series(1, ${orders}) AS n, generate_series(1, CASE WHEN n % 5 = 0 THEN 2 ELSE 1 END) AS v) AS e`;
}

async function fillOrders(client: pg.Client, sample: Sample): Promise<void> {
  const all = events(sample);
  await client.query(readFileSync(join(programs, 'orders/sql/0001_orders.sql'), 'utf8'));
  await client.query(
    `INSERT INTO orders SELECT order_id, '${tenant}', account_id, amount_cents,
       CASE WHEN n % 5 = 0 THEN 'paid' ELSE 'created' END, CASE WHEN n % 5 = 0 THEN 2 ELSE 1 END FROM ${all} WHERE v = 1`,
  );
  await client.query(
    `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload)
     SELECT 0, $1, order_id::text, msg_id, CASE v WHEN 1 THEN 'order.created' ELSE 'order.status_changed' END,
       convert_to(CASE v WHEN 1 THEN json_build_object('order_id', order_id, 'account_id', account_id, 'amount_cents',
         amount_cents, 'status', 'created', 'version', 1) ELSE json_build_object('order_id', order_id, 'status', 'paid',
         'version', 2) END::text, 'utf8') FROM ${all} ORDER BY v, n`,
    [sample.topic],
  );
  await client.query(
    `INSERT INTO twiceproof.idempotency_keys (key_hash, principal, operation, idem_key, request_hash, hash_version)
     SELECT msg_id, '${tenant}', CASE v WHEN 1 THEN 'orders.create' ELSE 'orders.set-status' END, 'key-' || n || '-' || v,
       '', 1 FROM ${all}`,
  );
}

async function fillPayments(client: pg.Client, sample: Sample): Promise<void> {
  const all = events(sample);
  await client.query(readFileSync(join(programs, 'payments/sql/0001_payments.sql'), 'utf8'));
  await client.query(
    `CREATE TABLE twiceproof.inbox_all PARTITION OF twiceproof.inbox
       FOR VALUES FROM ('00000000-0000-7000-8000-000000000000') TO ('ffffffff-0000-7000-8000-000000000000')`,
  );
  await client.query(`INSERT INTO twiceproof.inbox SELECT msg_id, 'payments', 1 FROM ${all}`);
  await client.query(
    `INSERT INTO effects (consumer, msg_id, order_id, version)
     SELECT 'payments', msg_id, order_id, v FROM ${all} ORDER BY v, n`,
  );
  await client.query(
    `INSERT INTO order_states SELECT DISTINCT ON (order_id) order_id, CASE v WHEN 1 THEN 'created' ELSE 'paid' END, v
     FROM ${all} ORDER BY order_id, v DESC`,
  );
  await client.query(`INSERT INTO charges SELECT msg_id, order_id, amount_cents FROM ${all} WHERE v = 1`);
}

interface Row {
  key: string;
  value: Buffer;
  msg_id: string;
  event_type: string;
}

async function fillTopic(url: string, { brokers, topic, signal }: Sample): Promise<void> {
  const producer = new Producer({
    clientId: 'bench',
    bootstrapBrokers: brokers.split(','),
    autocreateTopics: false,
    idempotent: true,
    retries: 10,
    retryDelay: 250,
  });
  producer.on('error', () => {}); // Every failure also comes back from its call.
  const text = `SELECT aggregate_id AS key, payload AS value, msg_id, event_type FROM twiceproof.outbox ORDER BY id`;
  try {
    for await (const rows of pagesOf<Row>(url, text)) {
      signal.throwIfAborted();
      const messages = rows.map((row) => recordOf(row, topic));
      await producer.send({ messages, acks: ProduceAcks.ALL });
    }
  } finally {
    await producer.close();
  }
}

function recordOf({ key, value, msg_id, event_type }: Row, topic: string): MessageToProduce {
  const headers = new Map<Buffer, Buffer>([
    [Buffer.from('ce_id'), Buffer.from(msg_id)],
    [Buffer.from('ce_type'), Buffer.from(event_type)],
  ]);
  const partition = Number.parseInt(key.slice(-4), 16) % partitions;
  return { topic, partition, key: Buffer.from(key), value, headers };
}

async function writeLedger(url: string, sample: Sample): Promise<void> {
  const startMs = Date.now() - 60_000;
  const head = { ledger: 3, startMs, startedAt: new Date(startMs), seed: 1, principal: tenant };
  const lines = `SELECT concat_ws(E'\\t', 'i', i, i, 'http', operation, key, '0', '0', wanted, account, cents, status)
      || E'\\n' || concat_ws(E'\\t', 'o', i, i + 5, 'ok', '201', 'h' || key, order_id, v,
        CASE v WHEN 1 THEN 'created' ELSE 'paid' END, '\\N') || E'\\n' AS line
    FROM (SELECT *, row_number() OVER () AS i, 'key-' || n || '-' || v AS key,
      CASE v WHEN 1 THEN 'create' ELSE 'set-status' END AS operation, CASE v WHEN 1 THEN '\\N' ELSE order_id::text END AS wanted,
      CASE v WHEN 1 THEN account_id::text ELSE '\\N' END AS account, CASE v WHEN 1 THEN amount_cents::text ELSE '\\N' END AS cents,
      CASE v WHEN 1 THEN '\\N' ELSE 'paid' END AS status
      FROM ${events(sample)}, generate_series(0, CASE WHEN n % 7 = 0 THEN 1 ELSE 0 END)) AS asked`;
  const file = createWriteStream(sample.ledger);
  file.write(`# ${JSON.stringify(head)}\n`);
  for await (const rows of pagesOf<{ line: string }>(url, lines)) {
    sample.signal.throwIfAborted();
    if (!file.write(rows.map(({ line }) => line).join(''))) await once(file, 'drain');
  }
  file.end();
  await once(file, 'close');
}

async function* pagesOf<Of extends pg.QueryResultRow>(url: string, select: string): AsyncGenerator<Of[]> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    await client.query('BEGIN');
    await client.query(`DECLARE pages NO SCROLL CURSOR FOR ${select}`);
    for (;;) {
      const { rows } = await client.query<Of>(`FETCH ${pageRows} FROM pages`);
      if (rows.length === 0) return;
      yield rows;
    }
  } finally {
    await client.end();
  }
}
