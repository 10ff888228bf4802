import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { httpOperation, problem, type HttpAnswer, type ParsedRequest, type Seen } from 'twiceproof/http';
import { keyedRoutes, keyLines } from 'twiceproof/http/fastify';
import type { Tx } from 'twiceproof/tx';
import { isOrderId, validateCreate, validateSetStatus, whatIsWrong, type Create, type SetStatus } from './commands.ts';
import type { Created, StatusSet } from './effects.ts';
import type { Operations } from './operations.ts';
import { demoTenantFrom } from './principal.ts';

/** The largest valid body has 70 bytes. */
const bodyLimitBytes = 16_384;
const json = 'application/json; charset=utf-8';
type ById = FastifyRequest<{ Params: { id: string } }>;

export interface HttpOptions {
  operations: Operations;
  database: Tx;
  observe(seen: Seen): void;
}

export function createHttpServer({ operations, database, observe }: HttpOptions): FastifyInstance {
  const server = Fastify({
    bodyLimit: bodyLimitBytes,
    // A connection that is kept alive may bring one request more while we stop: it is served, and then closed.
    return503OnClosing: false,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: 200 },
    frameworkErrors: (_, __, reply) => {
      send(reply, generalProblem(400, 'The request cannot be read.'));
    },
  });
  const traceparent = (request: FastifyRequest): unknown => request.headers['traceparent'];
  const common = { principal: tenantOf, keyLines, traceparent, observe };
  const create = httpOperation(operations.create, { ...common, parse: parseCreate, render: { 1: renderCreated } });
  const setStatus = httpOperation(operations.setStatus, {
    ...common,
    parse: (request: FastifyRequest, tenant) => parseSetStatus(request as ById, tenant),
    render: { 1: renderStatusSet },
  });
  server.register(keyedRoutes, {
    routes: [
      { url: '/orders', answer: create },
      { url: '/orders/:id/status', answer: setStatus },
    ],
  });
  server.get('/orders/:id', async (request: ById, reply) => send(reply, await readOrder(database, request)));
  server.setNotFoundHandler((_, reply) => send(reply, generalProblem(404, 'There is nothing here.')));
  server.setErrorHandler((error, _, reply) => {
    const { statusCode = 500 } = error as { statusCode?: number };
    if (statusCode < 500) return send(reply, generalProblem(statusCode, 'The request cannot be read.'));
    // Only reading an order comes here, and whatever failed, it may be read again.
    observe({ operation: 'orders.read', outcome: 'unavailable', status: 503, durationMs: reply.elapsedTime, error });
    return send(reply, problem('unavailable'));
  });
  return server;
}

function tenantOf(request: FastifyRequest): string | undefined {
  return demoTenantFrom(request.headers.authorization);
}

function parseCreate(request: FastifyRequest, tenant: string): ParsedRequest<Create> {
  const body = parseJson(request);
  if ('problem' in body) return body;
  if (!validateCreate(body.value)) return { problem: 'request-invalid', detail: whatIsWrong(validateCreate) };
  const { account_id, amount_cents } = body.value;
  return { command: { tenant, account_id, amount_cents } };
}

function parseSetStatus(request: ById, tenant: string): ParsedRequest<SetStatus> {
  const body = parseJson(request);
  if ('problem' in body) return body;
  if (!validateSetStatus(body.value)) return { problem: 'request-invalid', detail: whatIsWrong(validateSetStatus) };
  const order_id = request.params.id.toLowerCase();
  if (!isOrderId(order_id)) return { problem: 'request-invalid', detail: 'the id of an order is a UUID' };
  return { command: { tenant, order_id, status: body.value.status } };
}

function parseJson(
  request: FastifyRequest,
): { value: unknown } | { problem: 'media-type-unsupported' | 'body-malformed'; detail: string } {
  if (!/^application\/json *(;|$)/i.test(request.headers['content-type'] ?? '')) {
    return { problem: 'media-type-unsupported', detail: 'it is application/json' };
  }
  try {
    return { value: JSON.parse(String(request.body)) as unknown };
  } catch {
    return { problem: 'body-malformed', detail: 'it is not JSON' };
  }
}

/** Version 1 of the answer, for as long as a result of version 1 is kept. */
function renderCreated({ code, result: { order_id, status } }: { code: number; result: Created }): HttpAnswer {
  return {
    status: code,
    headers: { 'content-type': json, location: `/orders/${order_id}`, etag: '"1"' },
    body: JSON.stringify({ order_id, status }),
  };
}

function renderStatusSet({ code, result }: { code: number; result: StatusSet }): HttpAnswer {
  const { order_id, status, version } = result;
  if (version === undefined) return unknownOrder();
  return {
    status: code,
    headers: { 'content-type': json, etag: `"${version}"` },
    body: JSON.stringify({ order_id, status, version }),
  };
}

async function readOrder(database: Tx, request: ById): Promise<HttpAnswer> {
  const tenant = tenantOf(request);
  if (!tenant) return problem('unauthenticated');
  const id = request.params.id.toLowerCase();
  if (!isOrderId(id)) return unknownOrder();
  const { rows } = await database.query(
    `SELECT order_id, account_id, amount_cents, status, version FROM orders WHERE order_id = $1 AND tenant = $2`,
    [id, tenant],
  );
  const [row] = rows;
  if (!row) return unknownOrder();
  const { order_id, account_id, amount_cents, status, version } = row;
  return {
    status: 200,
    headers: { 'content-type': json, etag: `"${Number(version)}"` },
    // Both were safe integers when they came in.
    body: JSON.stringify({
      order_id,
      account_id: Number(account_id),
      amount_cents: Number(amount_cents),
      status,
      version,
    }),
  };
}

function unknownOrder(): HttpAnswer {
  return generalProblem(404, 'There is no such order.', 'urn:twiceproof-orders:problem:order-unknown');
}

function generalProblem(status: number, title: string, type = 'about:blank'): HttpAnswer {
  const body = JSON.stringify({ type, title, status });
  return { status, headers: { 'content-type': 'application/problem+json' }, body };
}

function send(reply: FastifyReply, { status, headers, body }: HttpAnswer): FastifyReply {
  return reply.code(status).headers(headers).send(body);
}
