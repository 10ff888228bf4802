/**
 * A run of the whole system as it should be, made up in memory: what was asked for, and the rows and records that follow
 * from it. A test changes something of it, writes it to real tables, a real topic and a real ledger, and asks the judge.
 */
import { execFile } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Producer } from '@platformatic/kafka';
import pg from 'pg';

const root = join(import.meta.dirname, '../..');

export const tenant = 'tenant-1';
export const partitions = 3;
const startMs = Date.now() - 60_000;

export interface Call {
  door: 'http' | 'grpc';
  operation: 'create' | 'set-status';
  key: string;
  order_id: string | null;
  account_id: number | null;
  amount_cents: number | null;
  status: string | null;
  /** Undefined: the ledger ends before the answer. */
  answer?: {
    verdict: 'ok' | 'fail' | 'unknown';
    code: number;
    hash: string | null;
    order_id: string | null;
    version: number | null;
    /** How long ago. Defaults to half a minute. */
    agoMs?: number;
  };
}

export interface Run {
  calls: Call[];
  orders: {
    order_id: string;
    tenant: string;
    account_id: number;
    amount_cents: number;
    status: string;
    version: number;
  }[];
  outbox: { msg_id: string; order_id: string; type: string; payload: string; created_at: Date }[];
  records: { partition: number; key: string; value: string; headers: Record<string, string>; atMs: number }[];
  inbox: { msg_id: string; consumer: string }[];
  charges: { charge_id: string; order_id: string; amount_cents: number }[];
  effects: { consumer: string; msg_id: string; order_id: string; version: number }[];
  held: { kind: string; msg_id: string; order_id: string }[];
  parked: { msg_id: string; order_id: string }[];
  claims: { operation: string; key: string }[];
}

const lastStatus = ['created', 'paid', 'shipped'] as const;

/**
 * Orders with 0, 1 or 2 changes of status. Every third is asked for twice at one door, every fourth at both; the last
 * one was never answered and done all the same, and one intent was never answered and never done.
 */
export function soundRun({ orders = 12, nonce = 7 } = {}): Run {
  const run = emptyRun();
  for (let n = 0; n < orders; n += 1) addOrder(run, nonce * 2 ** 32 + n + 1, n, n === orders - 1);
  run.calls.push({ ...create(nonce * 2 ** 32 + orders + 1, `k${nonce}-never`), door: 'http' });
  return run;
}

export function emptyRun(): Run {
  const [made, done] = [
    { calls: [], orders: [], outbox: [], parked: [], claims: [] },
    { inbox: [], held: [], charges: [], effects: [] },
  ];
  return { ...made, records: [], ...done };
}

export function addOrder(run: Run, accountId: number, n: number, unanswered: boolean): void {
  const orderId = uuidv7();
  const version = 1 + (n % 3);
  for (let v = 1; v <= version; v += 1) {
    const key = `k${accountId}-${v}`;
    const status = lastStatus[v - 1]!;
    const call: Call =
      v === 1
        ? create(accountId, key)
        : {
            door: 'http',
            operation: 'set-status',
            key,
            order_id: orderId,
            account_id: null,
            amount_cents: null,
            status,
          };
    for (const [attempt, door] of doorsOf(n).entries()) {
      const ok = {
        verdict: 'ok',
        code: door === 'http' ? 200 : 0,
        hash: `${door}${accountId}${v}`,
        order_id: orderId,
        version: v,
      };
      run.calls.push({
        ...call,
        door,
        ...(unanswered && attempt === 0 ? {} : { answer: ok as NonNullable<Call['answer']> }),
      });
    }
    run.claims.push({ operation: `orders.${call.operation}`, key });
    const amount = v === 1 ? { account_id: accountId, amount_cents: amountOf(accountId) } : {};
    addEvent(run, { order_id: orderId, ...amount, status, version: v }, n);
  }
  const [amount_cents, status] = [amountOf(accountId), lastStatus[version - 1]!];
  run.orders.push({ order_id: orderId, tenant, account_id: accountId, amount_cents, status, version });
  run.charges.push({ charge_id: uuidv7(), order_id: orderId, amount_cents });
}

interface EventPayload {
  order_id: string;
  version: number;
  status: string;
}

/** An event and all that follows from it but the charge. */
export function addEvent(run: Run, payload: EventPayload, n: number): void {
  const { order_id, version } = payload;
  const msg_id = uuidv7();
  const type = version === 1 ? 'order.created' : 'order.status_changed';
  const value = JSON.stringify(payload);
  run.outbox.push({ msg_id, order_id, type, payload: value, created_at: new Date(startMs) });
  run.records.push({
    partition: n % partitions,
    key: order_id,
    value,
    headers: { ce_id: msg_id, ce_type: type },
    atMs: startMs,
  });
  run.inbox.push({ msg_id, consumer: 'payments' });
  run.effects.push({ consumer: 'payments', msg_id, order_id, version });
}

function doorsOf(n: number): ('http' | 'grpc')[] {
  return ['http', ...(n % 3 === 0 ? (['http'] as const) : []), ...(n % 4 === 0 ? (['grpc'] as const) : [])];
}

function create(accountId: number, key: string): Call {
  const amount_cents = amountOf(accountId);
  return { door: 'http', operation: 'create', key, order_id: null, account_id: accountId, amount_cents, status: null };
}

export function amountOf(accountId: number): number {
  return 100 + (accountId % 900);
}

let lastMs = 0;

/** Rising, one for each millisecond of a time that goes ahead of the clock if it must. */
export function uuidv7(): string {
  lastMs = Math.max(startMs, lastMs + 1);
  const time = lastMs.toString(16).padStart(12, '0');
  const rest = randomBytes(8).toString('hex');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${rest.slice(0, 3)}-8${rest.slice(3, 6)}-${randomBytes(6).toString('hex')}`;
}

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

export function ledgerOf(calls: readonly Call[]): string {
  return ledgerHead + calls.map((call, n) => callLine(n, call) + answerLine(n, call)).join('');
}

export const ledgerHead = `# ${JSON.stringify({ ledger: 2, startMs, startedAt: new Date(startMs), seed: 1, principal: tenant })}\n`;

export function callLine(
  n: number,
  { door, operation, key, order_id, account_id, amount_cents, status }: Call,
): string {
  return lineOf(['i', n, n, door, operation, key, 0, 0, order_id, account_id, amount_cents, status]);
}

export function answerLine(n: number, { answer }: Call): string {
  if (!answer) return '';
  const us = (Date.now() - (answer.agoMs ?? 30_000) - startMs) * 1_000;
  return lineOf(['o', n, us, answer.verdict, answer.code, answer.hash, answer.order_id, answer.version, null]);
}

function lineOf(fields: readonly (string | number | null)[]): string {
  return `${fields.map((field) => field ?? '\\N').join('\t')}\n`;
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
