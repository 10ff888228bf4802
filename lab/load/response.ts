/**
 * One HTTP/1.1 response at a time, in whatever pieces it comes. Strict: what a proxy might read otherwise
 * is refused, not guessed at. What it hands over is a status and a digest of the status line, the end-to-end
 * headers without Date, the body, and the trailers, in their order; text only for whoever asks for it at once.
 *
 * status line -> header lines -> [ length | chunk size -> chunk -> ... -> trailer lines | until close ] -> done
 */
import { addByte, addBytes, closeDigest, resetDigest } from './digest.ts';
import type { Answer } from './line.ts';
import { orderIdIn, statusIn, versionIn } from './named.ts';
import {
  equalsText,
  headerKind,
  isFieldValue,
  lineEnd,
  readChunkSize,
  readContentLength,
  smallLetter,
} from './fields.ts';

export type Progress = 'more' | 'done' | 'broken';

export interface ResponseParser extends Answer {
  /** Whether the connection can carry another request. */
  keepAlive: boolean;
  /** Why it is broken. */
  problem: string;
  reset(): void;
  feed(piece: Buffer, size: number): Progress;
  /** The connection has ended: the end of a body that has no length, and of any other the loss. */
  end(): Progress;
}

type Phase = 'status' | 'headers' | 'length' | 'chunk-size' | 'chunk' | 'trailers' | 'until-close' | 'done';

interface State extends ResponseParser {
  phase: Phase;
  /** Up to here it is read; an offset into the whole response. */
  at: number;
  bodyAt: number;
  /** Of the body or the chunk; -1 while no header has said it. */
  length: number;
  chunked: boolean;
}

const again: unique symbol = Symbol('another phase');
type Step = Progress | typeof again;

export function createParser(maxBytes: number): ResponseParser {
  // Only for responses that come in pieces: most come whole, and are read where they lie.
  let kept = Buffer.alloc(0);
  let keptSize = 0;
  const whole: { bytes: Buffer; size: number } = { bytes: kept, size: 0 };
  const state: State = {
    status: 0,
    digest: { a: 0, b: 0 },
    keepAlive: true,
    problem: '',
    phase: 'status',
    at: 0,
    bodyAt: 0,
    length: -1,
    chunked: false,
    reset() {
      keptSize = 0;
      state.status = 0;
      state.keepAlive = true;
      state.problem = '';
      state.phase = 'status';
      state.at = 0;
      state.length = -1;
      state.chunked = false;
      resetDigest(state.digest);
    },
    feed(piece, size) {
      if (keptSize + size > maxBytes) return broken(state, `more than ${maxBytes} bytes`);
      if (keptSize > 0) keep(piece, size);
      whole.bytes = keptSize > 0 ? kept : piece;
      whole.size = keptSize > 0 ? keptSize : size;
      const progress = advance(state, whole.bytes, whole.size);
      if (progress === 'more' && keptSize === 0) keep(piece, size);
      return progress;
    },
    end() {
      if (state.phase !== 'until-close') return broken(state, 'the connection ended');
      addBytes(state.digest, kept, state.at, keptSize);
      whole.bytes = kept;
      whole.size = state.at = keptSize;
      return finish(state);
    },
    orderId: () => orderIdIn(whole.bytes, state.bodyAt, state.at),
    version: () => versionIn(whole.bytes, state.bodyAt, state.at),
    orderStatus: () => statusIn(whole.bytes, state.bodyAt, state.at),
    sample: (max) => whole.bytes.toString('latin1', 0, Math.min(max, whole.size)),
  };
  const keep = (piece: Buffer, size: number): void => {
    if (keptSize + size > kept.length) {
      const grown = Buffer.alloc(Math.min(maxBytes, Math.max(4_096, 2 * (keptSize + size))));
      kept.copy(grown, 0, 0, keptSize);
      kept = grown;
    }
    piece.copy(kept, keptSize, 0, size);
    keptSize += size;
  };
  state.reset();
  return state;
}

function advance(state: State, bytes: Buffer, size: number): Progress {
  for (;;) {
    const step = phases[state.phase](state, bytes, size);
    if (step === 'done' && state.at !== size) return broken(state, 'bytes after the end');
    if (step !== again) return step;
  }
}

const phases: Record<Phase, (state: State, bytes: Buffer, size: number) => Step> = {
  status(state, bytes, size) {
    const end = lineEnd(bytes, state.at, size);
    if (end < 0) return end === -1 ? 'more' : broken(state, 'a bare LF or CR');
    const status = readStatus(bytes, end);
    if (status === 0) return broken(state, 'no HTTP/1.1 status line');
    // We never ask for an interim answer, and a server that switches protocols is not ours.
    if (status < 200) return broken(state, `an interim answer ${status}`);
    state.status = status;
    addBytes(state.digest, bytes, 9, end);
    return nextLine(state, end, 'headers');
  },
  headers(state, bytes, size) {
    const end = lineEnd(bytes, state.at, size);
    if (end < 0) return end === -1 ? 'more' : broken(state, 'a bare LF or CR');
    if (end === state.at) return beginBody(state, end + 2);
    return readHeader(state, bytes, end) ?? nextLine(state, end, 'headers');
  },
  length(state, bytes, size) {
    const end = state.at + state.length;
    if (size < end) return 'more';
    addBytes(state.digest, bytes, state.at, end);
    state.at = end;
    return finish(state);
  },
  'chunk-size'(state, bytes, size) {
    const end = lineEnd(bytes, state.at, size);
    if (end < 0) return end === -1 ? 'more' : broken(state, 'a bare LF or CR');
    state.length = readChunkSize(bytes, state.at, end);
    if (state.length < 0) return broken(state, 'a bad chunk size');
    return nextLine(state, end, state.length === 0 ? 'trailers' : 'chunk');
  },
  chunk(state, bytes, size) {
    const end = state.at + state.length;
    if (size < end + 2) return 'more';
    if (bytes[end] !== 13 || bytes[end + 1] !== 10) return broken(state, 'a chunk longer than it said');
    addBytes(state.digest, bytes, state.at, end);
    return nextLine(state, end, 'chunk-size');
  },
  trailers(state, bytes, size) {
    const end = lineEnd(bytes, state.at, size);
    if (end < 0) return end === -1 ? 'more' : broken(state, 'a bare LF or CR');
    if (end > state.at) return readHeader(state, bytes, end) ?? nextLine(state, end, 'trailers');
    state.at = end + 2;
    return finish(state);
  },
  'until-close': () => 'more',
  done: (state) => broken(state, 'bytes after the end'),
};

function broken(state: State, problem: string): Progress {
  state.problem = problem;
  return 'broken';
}

function finish(state: State): Progress {
  state.phase = 'done';
  closeDigest(state.digest);
  return 'done';
}

function nextLine(state: State, end: number, phase: Phase): Step {
  state.at = end + 2;
  state.phase = phase;
  return again;
}

const version = Buffer.from('HTTP/1.1 ', 'latin1');

/** The status, or 0. A reason may be empty, but the space before it must be there. */
function readStatus(bytes: Buffer, end: number): number {
  if (end < 13 || bytes[12] !== 32) return 0;
  for (let at = 0; at < 9; at++) if (bytes[at] !== version[at]) return 0;
  let status = 0;
  for (let at = 9; at < 12; at++) {
    const digit = bytes[at]! - 48;
    if (digit < 0 || digit > 9) return 0;
    status = status * 10 + digit;
  }
  return isFieldValue(bytes, 13, end) ? status : 0;
}

/** Reads one line; undefined if it is well. */
function readHeader(state: State, bytes: Buffer, end: number): Progress | undefined {
  const from = state.at;
  let colon = from;
  while (colon < end && bytes[colon] !== 58) colon++;
  const kind = colon === end ? 'malformed' : headerKind(bytes, from, colon);
  let valueFrom = colon + 1;
  let valueTo = end;
  while (valueFrom < valueTo && isSpace(bytes[valueFrom]!)) valueFrom++;
  while (valueTo > valueFrom && isSpace(bytes[valueTo - 1]!)) valueTo--;
  if (kind === 'malformed' || !isFieldValue(bytes, valueFrom, valueTo)) return broken(state, 'a malformed header');
  if (kind === 'dropped') return undefined;
  if (kind === 'connection') {
    if (equalsText(bytes, valueFrom, valueTo, 'keep-alive')) return undefined;
    const tokens = bytes
      .toString('latin1', valueFrom, valueTo)
      .toLowerCase()
      .split(/[ \t]*,[ \t]*/);
    if (tokens.includes('close')) state.keepAlive = false;
    return undefined;
  }
  if (kind !== 'end-to-end' && state.phase === 'trailers') return broken(state, 'framing in a trailer');
  if (kind === 'transfer-encoding') {
    if (state.chunked || !equalsText(bytes, valueFrom, valueTo, 'chunked')) return broken(state, 'an unknown coding');
    state.chunked = true;
    return undefined;
  }
  if (kind === 'content-length') {
    if (state.length !== -1) return broken(state, 'two lengths');
    state.length = readContentLength(bytes, valueFrom, valueTo);
    if (state.length < 0) return broken(state, 'a bad length');
  }
  // Names mean the same in any case; the separators keep "a: bc" and "ab: c" apart.
  for (let at = from; at < colon; at++) addByte(state.digest, smallLetter(bytes[at]!));
  addByte(state.digest, 58);
  addBytes(state.digest, bytes, valueFrom, valueTo);
  addByte(state.digest, 10);
  return undefined;
}

function isSpace(byte: number): boolean {
  return byte === 32 || byte === 9;
}

function beginBody(state: State, at: number): Step {
  state.at = state.bodyAt = at;
  addByte(state.digest, 10);
  if (state.chunked && state.length !== -1) return broken(state, 'a length and chunks');
  if (state.status === 204 || state.status === 304) return finish(state);
  if (state.chunked) state.phase = 'chunk-size';
  else if (state.length !== -1) state.phase = 'length';
  else {
    state.phase = 'until-close';
    state.keepAlive = false;
  }
  return again;
}
