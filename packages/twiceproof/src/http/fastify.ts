import { Readable } from 'node:stream';
import type { FastifyPluginCallback, FastifyReply, FastifyRequest } from 'fastify';
import { arePointsArmed, point } from '../points.ts';
import type { HttpAnswer } from './answer.ts';
import { keyLinesOf } from './door.ts';
import { headersOf } from './fetch.ts';
import { closeWhereAnAnswerIsOwed } from './owed-answer.ts';
import { problem } from './problem.ts';

export interface KeyedRoute {
  method?: 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  url: string;
  /** What `httpOperation` gives, or `fromFetch`. The body is a Buffer: the bytes as they came. */
  answer(request: FastifyRequest): Promise<HttpAnswer>;
  /** Defaults to that of the server. */
  bodyLimitBytes?: number;
}

/** Routes whose requests carry a key. They have a scope of their own, in which bodies are bytes and errors are problems. */
export const keyedRoutes: FastifyPluginCallback<{ routes: readonly KeyedRoute[] }> = (server, { routes }, done) => {
  server.removeAllContentTypeParsers();
  server.addContentTypeParser('*', { parseAs: 'buffer' }, (_, body, parsed) => parsed(null, body));
  server.setErrorHandler((error, request, reply) => {
    const answered = problemOf(error);
    // Nobody observes what does not get to a door, and a client is not told.
    if (answered.status >= 500) console.error(`twiceproof/http: ${request.routeOptions.url}: internal:`, error);
    return send(reply, answered);
  });
  // Before Fastify answers them with a 400.
  server.server.prependListener('clientError', (_, socket) => {
    closeWhereAnAnswerIsOwed(socket);
  });
  for (const { method = 'POST', url, answer, bodyLimitBytes } of routes) {
    server.route({
      method,
      url,
      ...(bodyLimitBytes !== undefined && { bodyLimit: bodyLimitBytes }),
      // Fastify runs it to its end whether the client is still there or not, and that is what we need.
      handler: async (request, reply) => {
        const answered = await answer(request);
        await point('http:committed');
        return send(reply, answered);
      },
    });
  }
  done();
};

/** The header lines as the client has sent them, for `httpOperation`. */
export function keyLines(request: FastifyRequest): string[] {
  return keyLinesOf(request.raw.rawHeaders);
}

/** A route that is answered by a function over Fetch, such as `idempotentHandler` gives. */
export function fromFetch(handler: (request: Request) => Promise<Response>): KeyedRoute['answer'] {
  return async (request) => {
    const headers = new Headers();
    const { rawHeaders } = request.raw;
    for (let n = 0; n < rawHeaders.length; n += 2) headers.append(rawHeaders[n]!, rawHeaders[n + 1]!);
    const body = request.body instanceof Buffer ? new Uint8Array(request.body) : null;
    const url = `${originOf(request.host)}${pathOf(request.url)}`;
    const response = await handler(new Request(url, { method: request.method, headers, body }));
    return { status: response.status, headers: headersOf(response.headers), body: await response.bytes() };
  };
}

/** The host is what the client says. It need not be one, and must not become a part of the path or carry a password. */
function originOf(host: string): string {
  const url = URL.parse(`http://${host}`);
  return url?.href === `http://${url?.host}/` ? url.origin : 'http://localhost';
}

/** A client may name the whole of it, as one does to a proxy: `POST http://host/path`. */
function pathOf(target: string): string {
  if (target.startsWith('/')) return target;
  const url = URL.parse(target);
  return url ? `${url.pathname}${url.search}` : '/';
}

function send(reply: FastifyReply, { status, headers, body }: HttpAnswer): FastifyReply {
  reply.code(status).headers(headers);
  const isText = typeof body === 'string';
  // A text goes out in one write together with the headers; bytes take a second one.
  if (!arePointsArmed && isText) return reply.send(body);
  const bytes = isText ? Buffer.from(body) : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  if (!arePointsArmed || bytes.byteLength < 2) return reply.send(bytes);
  return reply.header('content-length', bytes.byteLength).send(Readable.from(inHalves(bytes)));
}

/** One write is one system call, so an answer goes out in two only where something may happen between them. */
async function* inHalves(bytes: Buffer): AsyncGenerator<Buffer> {
  const middle = Math.ceil(bytes.byteLength / 2);
  yield bytes.subarray(0, middle);
  await point('http:half-written');
  yield bytes.subarray(middle);
}

/** What Fastify refuses before a request gets to its route's answer; nothing of it is stored. */
function problemOf(error: unknown): HttpAnswer {
  const { statusCode } = error as { statusCode?: unknown };
  if (statusCode === 413) return problem('body-too-large');
  if (statusCode === 415) return problem('media-type-unsupported');
  return problem(typeof statusCode === 'number' && statusCode < 500 ? 'body-malformed' : 'internal');
}
