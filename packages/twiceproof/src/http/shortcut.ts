import { STATUS_CODES, validateHeaderName, validateHeaderValue, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { arePointsArmed, point } from '../points.ts';
import { framed, type HttpAnswer } from './answer.ts';
import { readPlainRequest, type ReadRequest } from './plain-request.ts';
import { problem } from './problem.ts';

export interface Shortcut {
  /** As those of the server, for the connections that have never left the shortcut. */
  closeIdleConnections(): void;
  closeAllConnections(): void;
}

interface Connection {
  readonly socket: Socket;
  /** What we have put on the socket, to take it off again. */
  readonly listeners: Readonly<Record<string, (bytes: Buffer) => void>>;
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
 * Answers plain requests (see `readPlainRequest`) right from the socket, which costs far less than `node:http` does. A
 * connection on which anything else comes is given to the server with all that it has brought, and stays there; so is
 * one with a request that `answer` does not want, and every one where the server has limits for requests on a socket
 * (`maxRequestsPerSocket`, `timeout`). So every rule of HTTP is still the server's to keep. Only for a server without TLS;
 * its `request` event and what else watches it see nothing of what goes this way.
 */
export function shortcut(server: Server, answer: (request: ReadRequest) => Promise<HttpAnswer> | undefined): Shortcut {
  const connections = new Set<Connection>();
  const [ordinary, ...others] = server.listeners('connection');
  if (!ordinary || others.length > 0) throw new Error('shortcut: the server has its own idea of connections');
  server.removeAllListeners('connection');

  const open = (socket: Socket): void => {
    const connection: Connection = {
      socket,
      listeners: {
        data: (bytes: Buffer) => read(connection, bytes),
        end: () => {
          connection.isEnded = true;
          if (!connection.isBusy) socket.end();
        },
        drain: () => {
          connection.usedAt = performance.now();
          socket.resume();
        },
        // `close` follows.
        error: () => {},
        close: () => connections.delete(connection),
      },
      isBusy: false,
      held: undefined,
      hasAnswered: false,
      isEnded: false,
      usedAt: performance.now(),
    };
    connections.add(connection);
    for (const [event, listener] of Object.entries(connection.listeners)) socket.on(event, listener);
  };
  const forget = (connection: Connection): void => {
    connections.delete(connection);
    for (const [event, listener] of Object.entries(connection.listeners)) connection.socket.off(event, listener);
  };
  const leave = (connection: Connection, bytes: Buffer): void => {
    const { socket } = connection;
    forget(connection);
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
    const answering = wanted(bytes);
    if (answering) {
      connection.isBusy = true;
      respond(connection, answering).catch(() => connection.socket.destroy());
    } else if (connection.isEnded) {
      // It cannot be put back any more, and nobody would hear of more than one request.
      connection.socket.destroySoon();
    } else {
      leave(connection, bytes);
    }
  };
  const wanted = (bytes: Buffer): Promise<HttpAnswer> | undefined => {
    if ((server.maxRequestsPerSocket ?? 0) > 0 || server.timeout > 0) return undefined;
    const request = readPlainRequest(bytes);
    try {
      return request && answer(request);
    } catch {
      return undefined;
    }
  };
  /** Rejects where headers cannot be written: the client gets no answer, and asks again. */
  const respond = async (connection: Connection, answering: Promise<HttpAnswer>): Promise<void> => {
    const answered = await orInternal(answering);
    if (arePointsArmed) await point('http:committed');
    const { socket } = connection;
    const keepsAlive = server.listening;
    // A client that has gone may ask again.
    if (socket.writable) await write(socket, answered, keepsAlive ? server.keepAliveTimeout : undefined);
    connection.isBusy = false;
    connection.hasAnswered = true;
    connection.usedAt = performance.now();
    if (!socket.destroyed) next(connection, keepsAlive);
  };
  const next = (connection: Connection, keepsAlive: boolean): void => {
    const { socket, held } = connection;
    connection.held = undefined;
    if (!keepsAlive) {
      forget(connection);
      socket.on('error', () => {}).destroySoon();
    } else if (held) {
      read(connection, held);
    } else if (connection.isEnded) {
      socket.end();
    } else if (socket.writableNeedDrain) {
      // A client that asks on without taking its answers.
      socket.pause();
    } else if (socket.isPaused()) {
      // There is no more of what it had sent too early.
      socket.resume();
    }
  };
  server.on('connection', open);

  const closeIdle = (isIdle: (connection: Connection) => boolean): void => {
    for (const connection of connections) {
      const { socket, isBusy } = connection;
      if (!isBusy && socket.writableLength === 0 && isIdle(connection)) socket.destroy();
    }
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

async function write(socket: Socket, answer: HttpAnswer, keepAliveMs: number | undefined): Promise<void> {
  const { headers, body } = framed(answer);
  const head = headOf(answer.status, headers, keepAliveMs);
  if (arePointsArmed && body.length > 1) {
    const bytes = Buffer.from(body);
    const middle = Math.ceil(bytes.length / 2);
    socket.write(Buffer.concat([Buffer.from(head, 'latin1'), bytes.subarray(0, middle)]));
    await point('http:half-written');
    socket.write(bytes.subarray(middle));
  } else if (typeof body === 'string' && Buffer.byteLength(body) === body.length) {
    socket.write(head + body, 'latin1');
  } else {
    socket.write(Buffer.concat([Buffer.from(head, 'latin1'), Buffer.from(body)]));
  }
}

const ofTheConnection: ReadonlySet<string> = new Set(['connection', 'date', 'keep-alive', 'transfer-encoding']);

/** Line for line what `node:http` writes. */
function headOf(status: number, headers: HttpAnswer['headers'], keepAliveMs: number | undefined): string {
  if (!Number.isInteger(status) || status < 200 || status > 999) throw new RangeError(`${status} is no status`);
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n`;
  for (const name in headers) {
    const value = headers[name]!;
    validateHeaderName(name);
    if (ofTheConnection.has(name)) throw new TypeError(`'${name}' belongs to the connection`);
    if (typeof value === 'string') head += lineOf(name, value);
    else for (const each of value) head += lineOf(name, each);
  }
  const keepAlive = keepAliveMs ? `\r\nKeep-Alive: timeout=${Math.floor(keepAliveMs / 1_000)}` : '';
  const connection = keepAliveMs === undefined ? 'close' : `keep-alive${keepAlive}`;
  return `${head}Date: ${dateText()}\r\nConnection: ${connection}\r\n\r\n`;
}

function lineOf(name: string, value: string): string {
  validateHeaderValue(name, value);
  return `${name}: ${value}\r\n`;
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
