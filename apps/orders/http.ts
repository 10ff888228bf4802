import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { httpOperation, problem, type HttpAnswer, type ParsedRequest, type Seen } from 'twiceproof/http';
import {
  keyLines,
  nodeListener,
  refuseUnreadable,
  shortcut,
  writeAnswer,
  type ReadRequest,
  type Shortcut,
} from 'twiceproof/http/node';
import type { Tx } from 'twiceproof/tx';
import { isOrderId, validateCreate, validateSetStatus, whatIsWrong, type Create, type SetStatus } from './commands.ts';
import type { Created, StatusSet } from './effects.ts';
import type { Operations } from './operations.ts';
import { demoTenantFrom } from './principal.ts';

/** The largest valid body has 70 bytes. */
const bodyLimitBytes = 16_384;
const json = 'application/json; charset=utf-8';

export interface HttpOptions {
  operations: Operations;
  database: Tx;
  observe(seen: Seen): void;
}

export function createHttpServer({ operations, database, observe }: HttpOptions): { server: Server; short: Shortcut } {
  const traceparent = ({ headers }: ReadRequest): unknown => headers['traceparent'];
  const common = { principal: tenantOf, keyLines, traceparent, observe };
  const create = httpOperation(operations.create, { ...common, parse: parseCreate, render: { 1: renderCreated } });
  const setStatus = httpOperation(operations.setStatus, {
    ...common,
    parse: parseSetStatus,
    render: { 1: renderStatusSet },
  });
  const listeners = {
    create: nodeListener(create, { bodyLimitBytes }),
    setStatus: nodeListener(setStatus, { bodyLimitBytes }),
    read: (request: IncomingMessage, response: ServerResponse): void => {
      const began = performance.now();
      readOrder(database, request)
        .catch((error: unknown) => {
          // Whatever failed, it may be read again.
          const durationMs = performance.now() - began;
          observe({ operation: 'orders.read', outcome: 'unavailable', status: 503, durationMs, error });
          return problem('unavailable');
        })
        .then(
          (answer) => writeAnswer(response, answer),
          () => response.destroy(),
        );
    },
    nothing: (_: IncomingMessage, response: ServerResponse): void => writeAnswer(response, nothingHere()),
  };
  const server = createServer((request, response) => {
    // A connection that is kept alive may bring one request more while we stop: it is served, and then closed.
    if (!server.listening) response.setHeader('connection', 'close');
    listeners[routeOf(request)](request, response);
  });
  refuseUnreadable(server);
  const keyed = { create, setStatus };
  const short = shortcut(server, (request) => {
    const route = routeOf(request);
    const isShort = (route === 'create' || route === 'setStatus') && request.body.length <= bodyLimitBytes;
    return isShort ? keyed[route](request) : undefined;
  });
  return { server, short };
}

type Asked = Pick<IncomingMessage, 'method' | 'url'>;

/** Not by a router: there are three routes, and each request would pay for it (decision 14). */
function routeOf({ method, url = '' }: Asked): 'create' | 'setStatus' | 'read' | 'nothing' {
  if (method === 'POST' && url === '/orders') return 'create';
  const [root, orders, id, status, more] = segmentsOf(url);
  if (root !== '' || orders !== 'orders' || id === '' || more !== undefined) return 'nothing';
  if (method === 'POST' && id === undefined) return 'create';
  if (method === 'POST' && status === 'status') return 'setStatus';
  return method === 'GET' && id !== undefined && status === undefined ? 'read' : 'nothing';
}

/** Of the path, decoded; none where that cannot be done. */
function segmentsOf(url: string): string[] {
  try {
    return url.split('?', 1)[0]!.split('/').map(decodeURIComponent);
  } catch {
    return [];
  }
}

function orderIdOf({ url = '' }: Asked): string {
  return segmentsOf(url)[2]!.toLowerCase();
}

function nothingHere(): HttpAnswer {
  return generalProblem(404, 'There is nothing here.');
}

function tenantOf({ headers }: Pick<IncomingMessage, 'headers'>): string | undefined {
  return demoTenantFrom(headers.authorization);
}

function parseCreate(request: ReadRequest, tenant: string): ParsedRequest<Create> {
  const body = parseJson(request);
  if ('problem' in body) return body;
  if (!validateCreate(body.value)) return { problem: 'request-invalid', detail: whatIsWrong(validateCreate) };
  const { account_id, amount_cents } = body.value;
  return { command: { account_id, amount_cents, tenant } };
}

function parseSetStatus(request: ReadRequest, tenant: string): ParsedRequest<SetStatus> {
  const body = parseJson(request);
  if ('problem' in body) return body;
  if (!validateSetStatus(body.value)) return { problem: 'request-invalid', detail: whatIsWrong(validateSetStatus) };
  const order_id = orderIdOf(request);
  if (!isOrderId(order_id)) return { problem: 'request-invalid', detail: 'the id of an order is a UUID' };
  return { command: { order_id, status: body.value.status, tenant } };
}

function parseJson({
  headers,
  body,
}: ReadRequest): { value: unknown } | { problem: 'media-type-unsupported' | 'body-malformed'; detail: string } {
  if (!/^application\/json *(;|$)/i.test(headers['content-type'] ?? '')) {
    return { problem: 'media-type-unsupported', detail: 'it must be application/json' };
  }
  try {
    return { value: JSON.parse(body.toString()) as unknown };
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

async function readOrder(database: Tx, request: IncomingMessage): Promise<HttpAnswer> {
  const tenant = tenantOf(request);
  if (!tenant) return problem('unauthenticated');
  const id = orderIdOf(request);
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
