/**
 * One keep-alive connection with at most one request in flight. It opens itself when it is given a
 * request and has no socket; whatever happens to the socket ends that request with a reason.
 *
 * closed -> opening -> idle <-> busy; every state falls back to closed when the socket goes.
 */
import { connect, type Socket } from 'node:net';
import type { Line, OnDone, Reason } from './line.ts';
import { isCut } from './plan.ts';
import { createRequest, type Request } from './request.ts';
import { createParser, type ResponseParser } from './response.ts';

export interface Connection extends Line {
  /** Opens the socket without a request; rejects if nobody listens. */
  open(): Promise<void>;
  close(): void;
}

export interface ConnectionOptions {
  host: string;
  port: number;
  principalHeader: string;
  seed: number;
  bornAtMs: number | undefined;
  maxResponseBytes: number;
  onOpen(): void;
  onDone: OnDone;
}

/** Node's servers close a connection after 5 s without a request: one sent at that moment would be lost. */
const maxIdleMs = 4_000;

// One for all: each piece is read before the next one comes.
const readBuffer = Buffer.alloc(65_536);

interface Own extends Connection {
  asked: Request;
  answer: ResponseParser;
  options: ConnectionOptions;
  socket: Socket | undefined;
  isOpen: boolean;
  /** `current` has been given to the socket. */
  isSent: boolean;
  usedMs: number;
}

export function createConnection(options: ConnectionOptions): Connection {
  const { host, port, principalHeader, seed, bornAtMs, maxResponseBytes } = options;
  const own: Own = {
    options,
    door: 'http',
    asked: createRequest(`${host}:${port}`, principalHeader, seed, bornAtMs),
    answer: createParser(maxResponseBytes),
    current: undefined,
    socket: undefined,
    isOpen: false,
    isSent: false,
    usedMs: 0,
    open() {
      const socket = openSocket(own);
      return new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject));
    },
    prepare(send) {
      own.current = send;
      own.isSent = false;
      own.asked.fill(send);
    },
    start(nowMs) {
      if (own.isOpen && nowMs - own.usedMs > maxIdleMs) drop(own);
      own.usedMs = nowMs;
      if (own.socket && own.isOpen) write(own, own.socket);
      else if (!own.socket) openSocket(own);
    },
    abandon(reason) {
      drop(own);
      finish(own, own.isSent ? reason : 'no-connection');
    },
    close: () => drop(own),
  };
  return own;
}

/** A socket that is not the connection's any more has nothing to say. */
function openSocket(own: Own): Socket {
  const { host, port } = own.options;
  const callback = (size: number, piece: Uint8Array): boolean => {
    if (socket === own.socket) read(own, piece as Buffer, size);
    return true;
  };
  const socket = connect({ host, port, noDelay: true, onread: { buffer: readBuffer, callback } });
  socket.on('connect', () => {
    if (socket !== own.socket) return;
    own.isOpen = true;
    own.options.onOpen();
    if (own.current) write(own, socket);
  });
  // `close` follows and says all that matters.
  socket.on('error', () => {});
  socket.on('close', () => {
    if (socket === own.socket) closed(own);
  });
  own.socket = socket;
  return socket;
}

function drop(own: Own): void {
  const { socket } = own;
  own.socket = undefined;
  own.isOpen = false;
  socket?.destroy();
}

function finish(own: Own, reason: Reason): void {
  const send = own.current;
  own.current = undefined;
  if (send) own.options.onDone(own, send, reason);
}

function write(own: Own, socket: Socket): void {
  const send = own.current!;
  own.isSent = true;
  own.answer.reset();
  if (send.kind !== 'cut-sent' || !isCut(send)) {
    socket.write(own.asked.bytes);
    return;
  }
  // Only when the kernel has it: destroy() would throw away what still waits in the process.
  socket.write(own.asked.bytes, () => {
    if (socket === own.socket) own.abandon('cut');
  });
}

function read(own: Own, piece: Buffer, size: number): void {
  const send = own.current;
  if (!send || !own.isSent) return drop(own);
  if (send.kind === 'cut-answer' && isCut(send)) return own.abandon('cut');
  const progress = own.answer.feed(piece, size);
  if (progress === 'more') return;
  if (progress === 'broken' || !own.answer.keepAlive) drop(own);
  finish(own, progress === 'broken' ? 'protocol' : 'answered');
}

function closed(own: Own): void {
  drop(own);
  if (!own.current) return;
  if (!own.isSent) return finish(own, 'refused');
  finish(own, own.answer.end() === 'done' ? 'answered' : 'reset');
}
