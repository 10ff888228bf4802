import { connect, type Socket } from 'node:net';

export interface HttpAnswer {
  status: number;
  /** By name in small letters. */
  headers: ReadonlyMap<string, string>;
  /** Each character is one byte. */
  body: string;
  /** All of it, from the status line on. */
  raw: string;
}

export interface Connection {
  /** Each character is one byte. They go out in pieces of these sizes, and then the rest. */
  send(bytes: string, pieces?: readonly number[]): void;
  /** The next answer; undefined once the connection has ended without one. */
  read(bodiless?: boolean): Promise<HttpAnswer | undefined>;
  /** Closes our side; what comes may still be read. */
  end(): void;
  destroy(): void;
}

/** Nobody waits that long, so something hangs. */
const silenceMs = 30_000;

export function openConnection(origin: string): Connection {
  const { hostname, port } = new URL(origin);
  const socket = connect({ port: Number(port), host: hostname, noDelay: true });
  socket.setTimeout(silenceMs, () => socket.destroy(new Error(`${silenceMs} ms of silence`)));
  const next = piecesOf(socket);
  let received: Buffer = Buffer.alloc(0);
  return {
    send: (bytes, pieces = []) => {
      let at = 0;
      for (const size of [...pieces, bytes.length]) {
        if (at < bytes.length && socket.writable) socket.write(bytes.slice(at, at + size), 'latin1');
        at += size;
      }
    },
    read: async (bodiless = false) => {
      for (let ended = false; ;) {
        const parsed = parseAnswer(received, bodiless, ended);
        if (parsed) {
          received = received.subarray(parsed.bytes);
          return parsed.answer;
        }
        if (ended) return undefined;
        const piece = await next();
        ended = !piece;
        if (piece) received = received.length === 0 ? piece : Buffer.concat([received, piece]);
      }
    },
    end: () => socket.end(),
    destroy: () => socket.destroy(),
  };
}

/** One piece for each call; undefined at the end. A reset is an end too; silence is an error. */
function piecesOf(socket: Socket): () => Promise<Buffer | undefined> {
  const pieces = socket[Symbol.asyncIterator]();
  return async () => {
    try {
      const { done, value } = (await pieces.next()) as IteratorResult<Buffer, undefined>;
      return done ? undefined : value;
    } catch (error) {
      if (['ECONNRESET', 'EPIPE'].includes(String((error as NodeJS.ErrnoException).code))) return undefined;
      throw error;
    }
  };
}

function parseAnswer(
  received: Buffer,
  bodiless: boolean,
  ended: boolean,
): { answer: HttpAnswer; bytes: number } | undefined {
  const headEnd = received.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const head = received.toString('latin1', 0, headEnd);
  const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(head)?.[1]);
  if (Number.isNaN(status)) throw new Error(`no status line: ${head.slice(0, 200)}`);
  const bodyAt = headEnd + 4;
  if (status < 200) {
    const rest = parseAnswer(received.subarray(bodyAt), bodiless, ended);
    return rest && { ...rest, bytes: rest.bytes + bodyAt };
  }
  const [, ...lines] = head.split('\r\n');
  const headers = new Map(
    lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]),
  );
  const length = bodyLength(headers, bodiless) ?? (ended ? received.length - bodyAt : undefined);
  if (length === undefined || received.length < bodyAt + length) return undefined;
  const raw = received.toString('latin1', 0, bodyAt + length);
  const body = raw.slice(bodyAt);
  if (isChunked(headers) && !bodiless && body !== noChunks) throw new Error('an answer in chunks');
  return { answer: { status, headers, body: body === noChunks ? '' : body, raw }, bytes: bodyAt + length };
}

/** Only Node itself answers in chunks, and then there are none. */
const noChunks = '0\r\n\r\n';

function isChunked(headers: ReadonlyMap<string, string>): boolean {
  return headers.has('transfer-encoding');
}

/** Undefined: up to the end of the connection. */
function bodyLength(headers: ReadonlyMap<string, string>, bodiless: boolean): number | undefined {
  if (bodiless) return 0;
  if (isChunked(headers)) return noChunks.length;
  const length = headers.get('content-length');
  return length === undefined ? undefined : Number(length);
}
