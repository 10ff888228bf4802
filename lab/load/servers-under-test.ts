/** For the tests here: servers of both doors that remember their answers, and a reader of ledgers. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Server, ServerCredentials, type sendUnaryData, type ServerUnaryCall } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';

export type Handler = (key: string, response: ServerResponse, request: IncomingMessage) => void;

export const created: Handler = (key, response) => {
  response.writeHead(201, { location: `/orders/${key}`, 'content-type': 'application/json' });
  response.end(JSON.stringify({ order_id: key, status: 'created' }));
};

/** As many servers as there are handlers, while `use` runs. */
export async function withServers<T>(handlers: Handler[], use: (urls: string[]) => Promise<T>): Promise<T> {
  const servers = handlers.map((handler) =>
    createServer((request, response) => {
      request.resume().on('end', () => handler(String(request.headers['idempotency-key']), response, request));
    }).listen(0, '127.0.0.1'),
  );
  try {
    await Promise.all(servers.map((server) => once(server, 'listening')));
    return await use(servers.map((server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  } finally {
    for (const server of servers) {
      server.closeAllConnections();
      server.close();
    }
  }
}

interface Reply {
  order_id: string;
  status: string;
  version?: number;
}

/** Orders as the real ones answer, in memory: several doors can share one. */
export interface Book {
  /** Requests by key, in their order. */
  asked: Map<string, object[]>;
  unanswered: number;
  /** Undefined: it is not answered, ever. */
  answer(key: string, asked: Record<string, unknown>): Reply | undefined;
}

export function createBook(isDeaf: () => boolean = () => false): Book {
  const replies = new Map<string, Reply>();
  const versions = new Map<string, number>();
  const book: Book = {
    asked: new Map(),
    unanswered: 0,
    answer(key, asked) {
      book.asked.set(key, [...(book.asked.get(key) ?? []), asked]);
      let reply = replies.get(key);
      if (!reply) {
        const { order_id = key, status = 'created' } = asked as Partial<Reply>;
        const version = (versions.get(order_id) ?? 0) + 1;
        versions.set(order_id, version);
        reply = { order_id, status, ...(status !== 'created' && { version }) };
        replies.set(key, reply);
      }
      if (!isDeaf()) return reply;
      book.unanswered++;
      return undefined;
    },
  };
  return book;
}

export interface Serving {
  port: number;
  /** Cuts every connection, and nobody listens any more. */
  kill(): Promise<void>;
}

export async function serveHttp(book: Book, port = 0): Promise<Serving> {
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (piece) => (body += String(piece)));
    request.on('end', () => {
      const order_id = /^\/orders\/([^/]+)\/status$/.exec(request.url ?? '')?.[1];
      const asked = { ...(order_id && { order_id }), ...(JSON.parse(body) as object) };
      const reply = book.answer(String(request.headers['idempotency-key']), asked);
      if (!reply) return;
      response.writeHead(order_id ? 200 : 201, { 'content-type': 'application/json' }).end(JSON.stringify(reply));
    });
  }).listen(port, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    kill: async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

const service = loadSync(join(import.meta.dirname, '../../apps/orders/orders.proto'), {
  keepCase: true,
  longs: Number,
  defaults: true,
})['twiceproof.orders.v1.Orders'] as Parameters<Server['addService']>[0];

type Call = ServerUnaryCall<Record<string, unknown>, Reply>;

export async function serveGrpc(book: Book, port = 0): Promise<Serving> {
  const server = new Server();
  const handle = ({ request, metadata }: Call, callback: sendUnaryData<Reply>): void => {
    const reply = book.answer(String(metadata.get('idempotency-key')[0]), request);
    if (reply) callback(null, reply);
  };
  server.addService(service, { Create: handle, SetStatus: handle });
  const bound = await new Promise<number>((resolve, reject) => {
    server.bindAsync(`127.0.0.1:${port}`, ServerCredentials.createInsecure(), (error, given) => {
      if (error) reject(error);
      else resolve(given);
    });
  });
  return {
    port: bound,
    kill: async () => server.forceShutdown(),
  };
}

export interface Line {
  invocation: string;
  door: string;
  operation: string;
  key: string;
  attempt: number;
  target: string;
  /** What was asked: order, account, amount and status, `\N` where there is none. */
  asked: readonly string[];
  verdict: string;
  code: string;
  hash: string;
  orderId: string;
  version: string;
  status: string;
  reason: string;
}

/** The first line, and every invocation with its outcome. Throws on a line that does not fit. */
export function readLedger(path: string): { facts: Record<string, unknown>; lines: Line[] } {
  const [first = '', ...texts] = readFileSync(path, 'latin1').trimEnd().split('\n');
  const open = new Map<string, Line>();
  const lines: Line[] = [];
  for (const text of texts) {
    const [kind, invocation = '', us = '', ...rest] = text.split('\t');
    if (!/^\d+$/.test(us)) throw new Error(`no time in ${text}`);
    if (kind === 'i' && rest.length === 9) {
      const [door = '', operation = '', key = '', attempt, target = '', ...asked] = rest;
      const none = { verdict: 'unknown', code: '', hash: '', orderId: '', version: '', status: '', reason: '' };
      const line: Line = { invocation, door, operation, key, attempt: Number(attempt), target, asked, ...none };
      open.set(invocation, line);
      lines.push(line);
    } else {
      const line = open.get(invocation);
      if (kind !== 'o' || rest.length !== 7 || !line) throw new Error(`not expected: ${text}`);
      const [verdict = '', code = '', hash = '', orderId = '', version = '', status = '', reason = ''] = rest;
      Object.assign(line, { verdict, code, hash, orderId, version, status, reason });
      open.delete(invocation);
    }
  }
  if (open.size > 0) throw new Error(`${open.size} invocations have no outcome`);
  return { facts: JSON.parse(first.replace(/^# /, '')) as Record<string, unknown>, lines };
}

/** Looks again and again, and throws when it takes too long. */
export async function until(isSo: () => boolean, what: string): Promise<void> {
  const deadline = performance.now() + 20_000;
  while (!isSo()) {
    if (performance.now() > deadline) throw new Error(`in 20 s: not ${what}`);
    await delay(2);
  }
}
