import type { Random } from './random.ts';

/** What was asked for, if the request is right. */
export interface Wanted {
  tenant: string;
  operation: 'orders.create' | 'orders.set-status';
  key: string;
  /** One text for the same thing. */
  command: string;
}

export type Expected =
  /** Carried out, or replayed; or told that the key was used for something else, if it was. */
  | { kind: 'wanted'; wanted: Wanted }
  /** Refused as this problem (where it is known which) before any query. */
  | { kind: 'refused'; as?: string }
  /** An answer about something that is there or not, which changes nothing. */
  | { kind: 'read' }
  /** Whatever it may be, it is no failure of the server's. */
  | { kind: 'open' };

export interface Case {
  /** Each character is one byte. */
  bytes: string;
  expected: Expected;
  /** For people: where it comes from. */
  about: string;
  /** It may end the connection, or wait for more, and so has one of its own. */
  alone?: true;
  /** Ends in the middle: the client closes its side behind it. */
  cut?: true;
  /** The answer has no body, whatever its headers say. */
  bodiless?: true;
}

export interface RequestParts {
  method?: string;
  path?: string;
  tenant?: string;
  /** Instead of that of the tenant. */
  authorization?: readonly string[];
  keyLines?: readonly string[];
  contentType?: readonly string[];
  headers?: readonly string[];
  body?: string;
}

/**
 * The tenant of every request that must be refused before the database is asked. That it never stands among the values
 * of a query is what shows it.
 */
export const refusedTenant = 'must-be-refused';
export const tenants = ['tenant-0', 'tenant-1', 'tenant-2'] as const;

/** One request, as it goes over the wire. */
export function requestBytes(random: Random, parts: RequestParts): string {
  const { method = 'POST', path = '/orders', tenant = refusedTenant, body = '' } = parts;
  const name = random.pick(['idempotency-key', 'Idempotency-Key', 'IDEMPOTENCY-KEY']);
  const separator = random.pick([': ', ':', ':  ']);
  const lines = [
    ...(parts.authorization ?? [`Bearer ${tenant}`]).map((value) => `authorization: ${value}`),
    ...(parts.keyLines ?? []).map((value) => `${name}${separator}${value}`),
    ...(parts.contentType ?? ['application/json']).map((value) => `content-type: ${value}`),
    ...(parts.headers ?? []),
  ];
  const chunked = body.length > 0 && random.chance(0.1);
  lines.push(chunked ? 'transfer-encoding: chunked' : `content-length: ${body.length}`);
  const shuffled = random.chance(0.3) ? lines.toReversed() : lines;
  const head = [`${method} ${path} HTTP/1.1`, 'host: localhost', ...shuffled].join('\r\n');
  return `${head}\r\n\r\n${chunked ? inChunks(random, body) : body}`;
}

function inChunks(random: Random, body: string): string {
  let text = '';
  for (let at = 0; at < body.length;) {
    const size = Math.min(body.length - at, 1 + random.int(200));
    text += `${size.toString(16)}${random.chance(0.1) ? ';a=b' : ''}\r\n${body.slice(at, at + size)}\r\n`;
    at += size;
  }
  // A key that stands behind the body is no key.
  return `${text}0\r\n${random.chance(0.1) ? 'idempotency-key: trailer\r\n' : ''}\r\n`;
}
