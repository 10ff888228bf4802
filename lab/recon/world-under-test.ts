/** Real tables, a real topic and a real ledger for a run that was made up (run-under-test.ts). */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Producer } from '@platformatic/kafka';
import pg from 'pg';
import { ledgerOf, tenant, type Run } from './run-under-test.ts';

const root = join(import.meta.dirname, '../..');

/** Both programs' tables, in two databases. */
export async function migrate(ordersUrl: string, paymentsUrl: string): Promise<void> {
  const cli = join(root, 'packages/twiceproof/src/cli/main.ts');
  for (const [url, sql] of [
    [ordersUrl, 'apps/orders/sql/0001_orders.sql'],
    [paymentsUrl, 'apps/payments/sql/0001_payments.sql'],
  ] as const) {
    await promisify(execFile)(process.execPath, ['--conditions=twiceproof-source', cli, 'migrate'], {
      env: { ...process.env, DATABASE_URL: url },
    });
    const client = new pg.Client(url);
    await client.connect();
    await client.query(await readFile(join(root, sql), 'utf8'));
    await client.query(
      `ALTER TABLE IF EXISTS charges DROP CONSTRAINT charges_once;
       CREATE TABLE twiceproof.inbox_all PARTITION OF twiceproof.inbox
         FOR VALUES FROM ('00000000-0000-7000-8000-000000000000') TO ('ffffffff-0000-7000-8000-000000000000')`,
    );
    await client.end();
  }
}

export interface Place {
  orders: pg.Pool;
  payments: pg.Pool;
  brokers: string;
  topic: string;
}

/** Adds it to what is there; answers the ledger's lines. */
export async function write(run: Run, { orders, payments, brokers, topic }: Place): Promise<string> {
  await writeOrders(run, orders, topic);
  await writePayments(run, payments, topic);
  const producer = openProducer(brokers);
  try {
    await produce(producer, topic, run.records);
  } finally {
    await producer.close();
  }
  return ledgerOf(run.calls);
}

type Database = Pick<pg.Pool, 'query'>;

async function insert(database: Database, table: string, rows: readonly object[], types: string): Promise<void> {
  const names = types.replaceAll(/ \w+(?=,|$)/g, '');
  const text = `INSERT INTO ${table} (${names}) SELECT ${names} FROM json_to_recordset($1) AS r (${types})`;
  if (rows.length > 0) await database.query(text, [JSON.stringify(rows)]);
}

export async function writeOrders(run: Run, database: Database, topic: string): Promise<void> {
  const orderTypes = 'order_id uuid, tenant text, account_id int8, amount_cents int8, status text, version int';
  await insert(database, 'orders', run.orders, orderTypes);
  const common = { shard: 0, topic };
  const messageTypes =
    'shard int2, topic text, aggregate_id text, msg_id uuid, event_type text, payload bytea, created_at timestamptz';
  const messages = run.outbox.map(({ payload, order_id: aggregate_id, type: event_type, ...row }) => {
    return { ...row, ...common, aggregate_id, event_type, payload: `\\x${Buffer.from(payload).toString('hex')}` };
  });
  await insert(database, 'twiceproof.outbox', messages, messageTypes);
  const parked = run.parked.map(({ msg_id, order_id: aggregate_id }) => {
    return { ...common, msg_id, aggregate_id, event_type: 'x', payload: '', created_at: new Date(), reason: 'x' };
  });
  await insert(database, 'twiceproof.relay_parked', parked, `${messageTypes}, reason text`);
  const claims = run.claims.map(({ operation, key: idem_key }) => {
    return { key_hash: randomUUID(), principal: tenant, operation, idem_key, request_hash: '', hash_version: 1 };
  });
  const claimTypes =
    'key_hash uuid, principal text, operation text, idem_key text, request_hash bytea, hash_version int2';
  await insert(database, 'twiceproof.idempotency_keys', claims, claimTypes);
}

export async function writePayments(run: Run, database: Database, topic: string): Promise<void> {
  const inbox = run.inbox.map((row) => ({ ...row, content_hash: 1 }));
  await insert(database, 'twiceproof.inbox', inbox, 'msg_id uuid, consumer text, content_hash int8');
  const record = { topic, topic_id: 'x', partition: 0, record_headers: [], record_value: '' };
  const held = run.held.map(({ order_id: aggregate_id, ...row }) => {
    return { ...row, ...record, aggregate_id, consumer: 'payments', blocks_key: false, content_hash: 1, reason: 'x' };
  });
  const heldTypes =
    'consumer text, kind text, blocks_key bool, aggregate_id text, msg_id uuid, content_hash int8, topic text, ' +
    'topic_id text, partition int, record_headers json, record_value bytea, reason text';
  await insert(database, 'twiceproof.held', held, heldTypes);
  await insert(database, 'charges', run.charges, 'charge_id uuid, order_id uuid, amount_cents int8');
  await insert(database, 'effects', run.effects, 'consumer text, msg_id uuid, order_id uuid, version int');
  await database.query(
    `INSERT INTO order_states AS known SELECT * FROM json_to_recordset($1) AS r (order_id uuid, status text, version int)
     ON CONFLICT (order_id) DO UPDATE SET status = excluded.status, version = excluded.version
       WHERE excluded.version > known.version`,
    [JSON.stringify(statesOf(run))],
  );
}

/** As payments has them: of each order the newest event that it has had. */
function statesOf({ outbox, effects, states }: Run): { order_id: string; status: string; version: number }[] {
  // Not by the id alone, which a defect may have given to two.
  const eventOf = (msgId: string, version: number): string | undefined =>
    outbox.find(({ msg_id, payload }) => msg_id === msgId && payload.includes(`"version":${version}`))?.payload;
  const newest = new Map<string, { status: string; version: number } | undefined>();
  for (const { order_id, msg_id, version } of effects) {
    if (version <= (newest.get(order_id)?.version ?? 0)) continue;
    newest.set(order_id, {
      status: /"status":"(\w+)"/.exec(eventOf(msg_id, version) ?? '')?.[1] ?? 'unknown',
      version,
    });
  }
  const all = new Map([...newest, ...states]);
  return [...all].flatMap(([order_id, state]) => (state ? [{ order_id, ...state }] : []));
}

export function openProducer(brokers: string): Producer {
  return new Producer({
    clientId: 'recon-test',
    bootstrapBrokers: brokers.split(','),
    autocreateTopics: false,
    idempotent: true, // Or a topic whose leaders have just been made gets some records twice.
    retries: 10,
    retryDelay: 250,
  });
}

const batch = 1_000;

export async function produce(producer: Producer, topic: string, records: Run['records']): Promise<void> {
  for (let n = 0; n < records.length; n += batch) {
    await producer.send({
      acks: -1,
      messages: records.slice(n, n + batch).map(({ partition, key, value, headers, atMs }) => ({
        topic,
        timestamp: BigInt(atMs),
        partition,
        key: Buffer.from(key),
        value: Buffer.from(value),
        headers: new Map(Object.entries(headers).map(([name, text]) => [Buffer.from(name), Buffer.from(text)])),
      })),
    });
  }
}

/** A ledger with this text, for as long as `use` takes. */
export async function withLedger<T>(text: string, use: (path: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), 'twiceproof-recon-'));
  try {
    const path = join(directory, 'ledger.tsv');
    await writeFile(path, text);
    return await use(path);
  } finally {
    await rm(directory, { recursive: true });
  }
}
