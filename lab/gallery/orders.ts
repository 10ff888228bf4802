/** An Orders service over HTTP, but for how it treats a key: that is the recipe. It writes our own outbox. */
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { ProduceAcks } from '@platformatic/kafka';
import type pg from 'pg';
import { EXIT, main, type Context, type FlagSpecs } from '@twiceproof/program';
import { toMessage } from '../baselines/producer.ts';
import { inTransaction, openDatabase, type Database } from './database.ts';
import { openPoints, type Point } from './point.ts';
import { openProducer } from './producer.ts';

export interface Asked {
  tenant: string;
  key: string;
  /** Of a change; a new order has none yet. */
  orderId: string | undefined;
  body: { account_id?: number; amount_cents?: number; status?: string };
}

export interface Answer {
  status: number;
  body: string;
}

export interface OrderEvent {
  id: string;
  orderId: string;
  type: string;
  payload: string;
}

export interface OrdersHands {
  pool: pg.Pool;
  point: Point;
  inTransaction<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T>;
  /** The business: a new order or a change of one, with its row in the outbox. */
  work(client: Database, asked: Asked): Promise<{ answer: Answer; event: OrderEvent | undefined }>;
  /** Without an outbox. */
  publish(event: OrderEvent): Promise<void>;
}

export interface OrdersRecipe {
  name: string;
  tables?: string;
  answer(asked: Asked, hands: OrdersHands): Promise<Answer>;
}

const flags = {
  'database-url': { type: 'string', env: 'DATABASE_URL', help: 'where orders are' },
  brokers: { type: 'string', env: 'KAFKA_BROKERS', help: 'for recipes that publish themselves' },
  port: { type: 'integer', default: 3000, min: 0, max: 65_535, help: 'of HTTP' },
  'grpc-port': { type: 'integer', default: 0, min: 0, max: 65_535, help: 'not used' },
  'admin-port': { type: 'integer', default: 0, min: 0, max: 65_535, help: 'not used' },
  'grace-ms': { type: 'integer', default: 0, min: 0, max: 600_000, help: 'not used' },
} as const satisfies FlagSpecs;

const tables = `
  CREATE TABLE IF NOT EXISTS orders (
    order_id uuid PRIMARY KEY, tenant text NOT NULL, account_id bigint NOT NULL, amount_cents bigint NOT NULL,
    status text NOT NULL, version int NOT NULL DEFAULT 1);`;

export async function runOrders(recipe: OrdersRecipe): Promise<void> {
  await main({
    name: recipe.name,
    summary: `A recipe of the gallery: ${recipe.name}.`,
    flags,
    run: async (context) => serve(recipe, context),
  });
}

async function serve(recipe: OrdersRecipe, { flags: given, output, signal }: Context<typeof flags>): Promise<number> {
  const pool = await openDatabase(given['database-url'], `${tables}\n${recipe.tables ?? ''}`);
  const producer = openProducer(recipe.name, given.brokers);
  const hands: OrdersHands = {
    pool,
    point: openPoints(process.env['TWICEPROOF_POINTS']),
    inTransaction: async (work) => inTransaction(pool, work),
    work: async (client, asked) => (asked.orderId === undefined ? create(client, asked) : setStatus(client, asked)),
    publish: async ({ id, orderId: key, type, payload }) => {
      const event = { topic: 'order.events', key, id, type, value: Buffer.from(payload), headers: {} };
      const createdAt = new Date().toISOString();
      await producer.send([toMessage({ ...event, createdAt })], ProduceAcks.ALL);
    },
  };
  const server = createServer((request, response) => {
    read(request)
      .then(async (asked) => (asked ? recipe.answer(asked, hands) : { status: 404, body: '{}' }))
      // A client asks again after a 503.
      .catch((): Answer => ({ status: 503, body: '{}' }))
      .then(({ status, body }) =>
        response.writeHead(status, { 'content-type': 'application/json', 'content-length': body.length }).end(body),
      )
      .catch(() => response.destroy());
  });
  await once(server.listen(given.port, '127.0.0.1'), 'listening');
  output.ready({ pid: process.pid });
  if (!signal.aborted) await once(signal, 'abort');
  server.close();
  server.closeAllConnections();
  await producer.close();
  await pool.end();
  return EXIT.ok;
}

async function read(request: IncomingMessage): Promise<Asked | undefined> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  const orderId = /^\/orders\/([^/]+)\/status$/.exec(request.url ?? '')?.[1];
  if (request.method !== 'POST' || (orderId === undefined && request.url !== '/orders')) return undefined;
  const tenant = (request.headers.authorization ?? '').replace(/^Bearer /, '');
  const key = String(request.headers['idempotency-key']);
  return { tenant, key, orderId, body: JSON.parse(Buffer.concat(pieces).toString()) as Asked['body'] };
}

async function create(client: Database, { tenant, body }: Asked) {
  const order_id = randomUUID();
  const { account_id, amount_cents } = body;
  const status = 'created';
  await client.query(
    'INSERT INTO orders (order_id, tenant, account_id, amount_cents, status) VALUES ($1, $2, $3, $4, $5)',
    [order_id, tenant, account_id, amount_cents, status],
  );
  const payload = { order_id, account_id, amount_cents, status, version: 1 };
  const event = await append(client, order_id, 'order.created', payload);
  return { answer: { status: 201, body: JSON.stringify({ order_id, status }) }, event };
}

async function setStatus(client: Database, { tenant, orderId: order_id, body: { status } }: Asked) {
  const { rows } = await client.query<{ version: number }>(
    'UPDATE orders SET status = $1, version = version + 1 WHERE order_id = $2 AND tenant = $3 RETURNING version',
    [status, order_id, tenant],
  );
  const [row] = rows;
  if (!row) return { answer: { status: 404, body: '{}' }, event: undefined };
  const payload = { order_id, status, version: row.version };
  const event = await append(client, order_id!, 'order.status_changed', payload);
  return { answer: { status: 200, body: JSON.stringify(payload) }, event };
}

async function append(client: Database, orderId: string, type: string, fields: object): Promise<OrderEvent> {
  const event = { id: uuidv7(), orderId, type, payload: JSON.stringify(fields) };
  await client.query(
    `INSERT INTO twiceproof.outbox (shard, topic, aggregate_id, msg_id, event_type, payload)
     SELECT abs(hashtext($1)::bigint) % shards, 'order.events', $1, $2, $3, $4 FROM twiceproof.settings`,
    [orderId, event.id, type, Buffer.from(event.payload)],
  );
  return event;
}

function uuidv7(): string {
  const time = Date.now().toString(16).padStart(12, '0');
  const bits = randomBytes(10).toString('hex');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${bits.slice(1, 4)}-8${bits.slice(5, 8)}-${bits.slice(8)}`;
}
