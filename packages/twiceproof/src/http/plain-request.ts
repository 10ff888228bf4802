import type { IncomingHttpHeaders } from 'node:http';

/** A request that has been read to its end. */
export interface ReadRequest {
  readonly method: string;
  readonly url: string;
  /** By their names in small letters. */
  readonly headers: IncomingHttpHeaders;
  /** Names and values by turns, as the client has sent them. */
  readonly rawHeaders: readonly string[];
  /** The bytes as they came. */
  readonly body: Buffer;
}

const maxHeadBytes = 4_096;
const requestLine = /^(POST|PUT|PATCH|DELETE) (\/[\x21-\x7e]*) HTTP\/1\.1$/;
const headerLine = /^[A-Za-z0-9-]+: [\x21-\x7e][\x20-\x7e]*$/;
const wholeNumber = /^(0|[1-9]\d{0,9})$/;
/** What changes how a request is read or answered, and a name whose value Node puts into a list. */
const notPlain: ReadonlySet<string> = new Set([
  'expect',
  'proxy-connection',
  'set-cookie',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * A request that is whole and has nothing about it that readers could disagree on: one way to write each part, no name
 * twice, a length and exactly that many bytes. Undefined is not a verdict, it means: let Node's own parser read it. So
 * nothing is refused here, and whatever is taken, Node would have read in the same way (a test asks it).
 */
export function readPlainRequest(bytes: Buffer): ReadRequest | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n', 0, 'latin1');
  if (headEnd < 0 || headEnd > maxHeadBytes) return undefined;
  const lines = bytes.toString('latin1', 0, headEnd).split('\r\n');
  const asked = requestLine.exec(lines[0]!);
  if (!asked) return undefined;
  const headers: IncomingHttpHeaders = Object.create(null) as IncomingHttpHeaders;
  const rawHeaders: string[] = [];
  for (let n = 1; n < lines.length; n += 1) {
    const line = lines[n]!;
    if (!headerLine.test(line) || line.endsWith(' ')) return undefined;
    const colon = line.indexOf(':');
    const raw = line.slice(0, colon);
    const name = raw.toLowerCase();
    const value = line.slice(colon + 2);
    if (name in headers || notPlain.has(name)) return undefined;
    headers[name] = value;
    rawHeaders.push(raw, value);
  }
  const { host, connection = 'keep-alive', 'content-length': length = '' } = headers;
  const isOrdinary = host !== undefined && connection.toLowerCase() === 'keep-alive' && wholeNumber.test(length);
  if (!isOrdinary || bytes.length !== headEnd + 4 + Number(length)) return undefined;
  return { method: asked[1]!, url: asked[2]!, headers, rawHeaders, body: bytes.subarray(headEnd + 4) };
}
