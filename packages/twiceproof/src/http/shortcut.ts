import { STATUS_CODES, validateHeaderName, validateHeaderValue, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { arePointsArmed, point } from '../points.ts';
import type { HttpAnswer } from './answer.ts';
import { readPlainRequest, type ReadRequest } from './plain-request.ts';
import { problem } from './problem.ts';

export interface Shortcut {
  /** As those of the server, for the connections that have never left the shortcut. */
  closeIdleConnections(): void;
  closeAllConnections(): void;
}

interface Connection {
  readonly socket: Socket;
  /** A request is being answered. */
  isBusy: boolean;
  /** What has come meanwhile. */
  held: Buffer | undefined;
  hasAnswered: boolean;
  /** The client sends no more. */
  isEnded: boolean;
  usedAt: number;
}

/** As Node itself adds, so that a request that is under way when the time is over still finds us. */
const idleBufferMs = 1_000;

/**
 * Answers plain requests (see `readPlainRequest`) right from the socket, which costs half of what `node:http` does. A
 * connection on which anything else comes is given to the server with all that it has brought, and stays there; so is
 * one with a request that `answer` does not want. So every rule of HTTP is still the server's to keep, with its limits
 * and times. Only for a server without TLS.
 */
export function shortcut(server: Server, answer: (request: ReadRequest) => Promise<HttpAnswer> | undefined): Shortcut {
  const connections = new Set<Connection>();
  const [ordinary, ...others] = server.listeners('connection');
  if (!ordinary || others.length > 0) throw new Error('shortcut: the server has its own idea of connections');
  server.removeAllListeners('connection');

  const leave = (connection: Connection, bytes: Buffer): void => {
    const { socket } = connection;
    connections.delete(connection);
    for (const event of events) socket.removeAllListeners(event);
    // Paused, or what is put back would wait until more comes.
    socket.pause();
    socket.unshift(bytes);
    ordinary.call(server, socket);
    socket.resume();
  };
  const read = (connection: Connection, bytes: Buffer): void => {
    if (connection.isBusy) {
      connection.held = connection.held ? Buffer.concat([connection.held, bytes]) : bytes;
      connection.socket.pause();
      return;
    }
    const request = readPlainRequest(bytes);
    const answering = request && answer(request);
    if (!answering) return leave(connection, bytes);
    connection.isBusy = true;
    respond(connection, answering).catch(() => connection.socket.destroy());
  };
  /** Rejects where headers cannot be written: the client gets no answer, and asks again. */
  const respond = async (connection: Connection, answering: Promise<HttpAnswer>): Promise<void> => {
    const answered = await orInternal(answering);
    if (arePointsArmed) await point('http:committed');
    await write(server, connection, answered);
    next(connection);
  };
  const next = (connection: Connection): void => {
    const { socket, held } = connection;
    connection.isBusy = false;
    connection.hasAnswered = true;
    connection.usedAt = performance.now();
    if (connection.isEnded || !server.listening) socket.end();
    else if (held) leave(connection, held);
    else if (socket.writableNeedDrain) {
      // A client that asks on without taking its answers.
      socket.pause();
      socket.once('drain', () => socket.resume());
    }
  };
  server.on('connection', (socket: Socket) => {
    const connection: Connection = {
      socket,
      isBusy: false,
      held: undefined,
      hasAnswered: false,
      isEnded: false,
      usedAt: performance.now(),
    };
    connections.add(connection);
    socket.on('data', (bytes: Buffer) => read(connection, bytes));
    socket.on('end', () => {
      connection.isEnded = true;
      if (!connection.isBusy) socket.end();
    });
    // `close` follows.
    socket.on('error', () => {});
    socket.on('close', () => connections.delete(connection));
  });

  const closeIdle = (isIdle: (connection: Connection) => boolean): void => {
    for (const connection of connections) if (!connection.isBusy && isIdle(connection)) connection.socket.destroy();
  };
  const sweep = setInterval(() => {
    const now = performance.now();
    closeIdle(({ usedAt, hasAnswered }) => {
      const limitMs = hasAnswered ? server.keepAliveTimeout : server.headersTimeout;
      return limitMs > 0 && now - usedAt > limitMs + idleBufferMs;
    });
  }, 1_000).unref();
  server.on('close', () => clearInterval(sweep));
  return {
    closeIdleConnections: () => closeIdle(() => true),
    closeAllConnections: () => {
      for (const { socket } of connections) socket.destroy();
    },
  };
}

async function orInternal(answering: Promise<HttpAnswer>): Promise<HttpAnswer> {
  try {
    return await answering;
  } catch {
    return problem('internal');
  }
}

const events = ['data', 'end', 'error', 'close', 'drain'] as const;

async function write(server: Server, { socket }: Connection, answer: HttpAnswer): Promise<void> {
  // The client has gone, and may ask again.
  if (!socket.writable) return;
  const { body } = answer;
  const length = typeof body === 'string' ? Buffer.byteLength(body) : body.byteLength;
  const head = headOf(server, answer, length);
  if (arePointsArmed && length > 1) {
    const bytes = Buffer.from(body);
    const middle = Math.ceil(length / 2);
    socket.write(Buffer.concat([Buffer.from(head), bytes.subarray(0, middle)]));
    await point('http:half-written');
    socket.write(bytes.subarray(middle));
  } else if (typeof body === 'string') {
    socket.write(head + body, length === body.length ? 'latin1' : 'utf8');
  } else {
    socket.write(Buffer.concat([Buffer.from(head), body]));
  }
}

/** Line for line what `node:http` writes. */
function headOf(server: Server, { status, headers }: HttpAnswer, length: number): string {
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n`;
  for (const name in headers) {
    const value = headers[name]!;
    validateHeaderName(name);
    validateHeaderValue(name, value);
    head += `${name}: ${value}\r\n`;
  }
  const keepsAlive = server.listening;
  const timeoutS = Math.floor(server.keepAliveTimeout / 1_000);
  const connection = keepsAlive ? `keep-alive\r\nKeep-Alive: timeout=${timeoutS}` : 'close';
  return `${head}content-length: ${length}\r\nDate: ${dateText()}\r\nConnection: ${connection}\r\n\r\n`;
}

let dateOfS = 0;
let date = '';

function dateText(): string {
  const nowS = Math.floor(Date.now() / 1_000);
  if (nowS !== dateOfS) {
    dateOfS = nowS;
    date = new Date(nowS * 1_000).toUTCString();
  }
  return date;
}
