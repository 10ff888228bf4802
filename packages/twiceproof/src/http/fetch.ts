import { createHash } from 'node:crypto';
import { createHandlerEdge, type HandlerEdgeOptions } from '../edge/handler.ts';
import type { Reply } from '../edge/reply.ts';
import type { Tx } from '../tx.ts';
import { requireKeptHeaders, type HttpAnswer } from './answer.ts';
import { callerOf, keyHeader, observed, told, toldOf, type DoorOptions, type Told } from './door.ts';

export interface FetchHandlerOptions extends DoorOptions<Request>, HandlerEdgeOptions {
  /** Keys belong to (principal, operation): the method and the route's template, or any name that stays. */
  operation: string;
  /**
   * Writes through `tx` and nothing else. What it throws, and an answer of 5xx, 400, 401, 403, 408, 422, 425 or 429, rolls
   * all of it back and leaves the key free; any other answer is stored with what was written, and replayed. So what the
   * business refuses for good is a 409, say. It may be run again after a serialization failure, with nothing left of the
   * run before.
   */
  handler(request: Request, tx: Tx): Promise<Response>;
  /** Defaults to 1,048,576. */
  maxBodyBytes?: number;
}

type Answered = Extract<Reply, { outcome: 'answered' }>;

const defaultMaxBodyBytes = 1_048_576;
const answerVersion = 1;
const requestHashVersion = 1;
/** Not the right moment, not the right caller, or no valid request: who corrects that may come again with the same key. */
const neverStored: ReadonlySet<number> = new Set([400, 401, 403, 408, 422, 425, 429]);

/** Any handler over Fetch's Request and Response, made idempotent. The function that it gives never rejects. */
export function idempotentHandler(options: FetchHandlerOptions): (request: Request) => Promise<Response> {
  const { operation } = options;
  const edge = createHandlerEdge(options);
  const answer = async (request: Request): Promise<Told> => {
    const line = request.headers.get(keyHeader);
    const caller = callerOf(await options.principal(request), line === null ? [] : [line]);
    if ('problem' in caller) return told(caller.problem);
    const body = await readBody(request, options.maxBodyBytes ?? defaultMaxBodyBytes);
    if (!body) return told('body-too-large');
    const intent = {
      ...caller,
      operation,
      requestHash: requestHash(request, body),
      hashVersion: requestHashVersion,
    };
    try {
      const reply = await edge.run(intent, async (tx) =>
        storedForm(await options.handler(withBody(request, body), tx)),
      );
      return reply.outcome === 'answered' ? rendered(reply) : toldOf(reply);
    } catch (error) {
      if (error instanceof NotStored) return { answer: await passedOn(error.response), outcome: 'not-stored' };
      throw error;
    }
  };
  return async (request) => toResponse(await observed(operation, options, async () => answer(request)));
}

/** Undefined: too large. A client that goes away before its body is here has asked for nothing yet. */
async function readBody(request: Request, maxBytes: number): Promise<Buffer | undefined> {
  if (!request.body) return Buffer.alloc(0);
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of request.body as ReadableStream<Uint8Array>) {
    bytes += piece.byteLength;
    if (bytes > maxBytes) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/**
 * Over the bytes as they came, and over what says how to read them and what they are for: the method, the path with its
 * parameters, the type. Each with its length before it, so that no two requests run together.
 */
function requestHash(request: Request, body: Buffer): string {
  const { pathname, search } = new URL(request.url);
  const hash = createHash('sha256');
  for (const part of [request.method, pathname, search, request.headers.get('content-type') ?? '', body]) {
    hash.update(`${Buffer.byteLength(part)}:`).update(part);
  }
  return hash.digest('hex');
}

/** A new one for each run, since a body can be read once. Not the client's signal: its going away changes nothing. */
function withBody({ url, method, headers }: Request, body: Buffer): Request {
  const hasBody = method !== 'GET' && method !== 'HEAD';
  return new Request(url, { method, headers, ...(hasBody && { body: new Uint8Array(body) }) });
}

class NotStored extends Error {
  readonly response: Response;
  constructor(response: Response) {
    super(`an answer of ${response.status} is not stored`);
    this.response = response;
  }
}

async function storedForm(response: Response): Promise<Answered['answer']> {
  // `Response.error()` has 0; it could be stored, and never be given to anybody.
  if (response.status < 200) throw new Error(`a handler has answered with the status ${response.status}`);
  if (response.status >= 500 || neverStored.has(response.status)) throw new NotStored(response);
  const headers = endToEnd(response.headers);
  requireKeptHeaders(headers);
  return {
    code: response.status,
    headers: headers as Record<string, string>,
    body: await response.bytes(),
    version: answerVersion,
  };
}

/** Whoever serves the answer counts its bytes again. */
function endToEnd(headers: Headers): HttpAnswer['headers'] {
  const { 'content-length': _, ...others } = headersOf(headers);
  return others;
}

/** Fetch joins all lines of one name, except cookies, which it gives one by one. */
export function headersOf(headers: Headers): Record<string, string | string[]> {
  const cookies = headers.getSetCookie();
  return { ...Object.fromEntries(headers), ...(cookies.length > 0 && { 'set-cookie': cookies }) };
}

async function passedOn(response: Response): Promise<HttpAnswer> {
  return { status: response.status, headers: endToEnd(response.headers), body: await response.bytes() };
}

/** The first answer too is made from what is stored. */
function rendered({ answer: { code, headers, body }, replayed }: Answered): Told {
  if (!body) return told('answer-not-kept');
  return { answer: { status: code, headers: headers ?? {}, body }, outcome: replayed ? 'replayed' : 'first' };
}

const withoutBody: ReadonlySet<number> = new Set([204, 205, 304]);

export function toResponse({ status, headers, body }: HttpAnswer): Response {
  const bytes = typeof body === 'string' ? body : new Uint8Array(body);
  const lines = Object.entries(headers).flatMap(([name, value]) => [value].flat().map((line) => [name, line] as const));
  return new Response(withoutBody.has(status) ? null : bytes, { status, headers: lines as [string, string][] });
}
