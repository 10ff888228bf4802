import { TwiceproofError } from '../errors.ts';

/** What goes out, whatever the framework. */
export interface HttpAnswer {
  status: number;
  /** Names in small letters. Several values are lines of their own, as cookies must be. */
  headers: Readonly<Record<string, string | string[]>>;
  body: Uint8Array | string;
}

/** With its length; and without a body where HTTP knows none, since a client would take it for the next answer. */
export function framed({ status, headers, body }: HttpAnswer): Pick<HttpAnswer, 'headers' | 'body'> {
  if (status === 204 || status === 304) return { headers, body: '' };
  const length = typeof body === 'string' ? Buffer.byteLength(body) : body.byteLength;
  return { headers: { ...headers, 'content-length': `${length}` }, body };
}

/**
 * What a keyed answer may carry. A replay must have the headers of the original, and what is not here either cannot
 * be repeated (a cookie, a challenge), must not be stored (a credential), or belongs to the connection.
 */
export const keptHeaders: ReadonlySet<string> = new Set([
  'allow',
  'cache-control',
  'content-disposition',
  'content-encoding',
  'content-language',
  'content-location',
  'content-type',
  'etag',
  'expires',
  'last-modified',
  'link',
  'location',
  'vary',
]);

/** At the first run, and not when a client first misses the header in a replay. */
export function requireKeptHeaders(headers: HttpAnswer['headers']): void {
  for (const [name, value] of Object.entries(headers)) {
    if (!keptHeaders.has(name)) {
      throw new TwiceproofError('TP_HEADER_NOT_KEPT', `a keyed answer carries '${name}', and a replay would not`);
    }
    if (typeof value === 'string' ? !ascii.test(value) : !value.every((line) => ascii.test(line))) {
      // Node writes them in one encoding or another, as it sends the body; a replay may go another way.
      throw new TwiceproofError('TP_HEADER_NOT_KEPT', `'${name}' of a keyed answer has characters beyond ASCII`);
    }
  }
}

const ascii = /^[\t\x20-\x7e]*$/;
