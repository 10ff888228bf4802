/** gRPC by hand, over Node's HTTP/2: a proper client would not send what we want to send. */
import { once } from 'node:events';
import {
  connect,
  constants,
  type ClientHttp2Session,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from 'node:http2';

export interface Call {
  headers: OutgoingHttpHeaders;
  /** What stands in the data frames: messages, each with its prefix, or what is none. */
  data: Buffer;
}

export interface CallResult {
  /** Of HTTP; undefined where the stream was reset before any. */
  http: number | undefined;
  /** Of gRPC; undefined where there was none. */
  status: number | undefined;
  /** What `twiceproof-problem` says. */
  problem: string | undefined;
  data: Buffer;
}

export interface GrpcConnection {
  call(call: Call): Promise<CallResult>;
  close(): Promise<void>;
}

const silenceMs = 30_000;

export function openGrpc(address: string): GrpcConnection {
  let session = newSession(address);
  return {
    call: async (call) => {
      if (session.closed || session.destroyed) session = newSession(address);
      return callOnce(session, call);
    },
    close: async () => {
      if (session.destroyed) return;
      const closed = once(session, 'close');
      session.destroy();
      await closed;
    },
  };
}

function newSession(address: string): ClientHttp2Session {
  const session = connect(`http://${address}`);
  session.on('error', () => {}); // Each stream tells it too.
  return session;
}

async function callOnce(session: ClientHttp2Session, { headers, data }: Call): Promise<CallResult> {
  const result: CallResult = { http: undefined, status: undefined, problem: undefined, data: Buffer.alloc(0) };
  const learn = (given: IncomingHttpHeaders): void => {
    if (given[':status'] !== undefined) result.http = Number(given[':status']);
    if (given['grpc-status'] !== undefined) result.status = Number(given['grpc-status']);
    if (given['twiceproof-problem'] !== undefined) result.problem = String(given['twiceproof-problem']);
  };
  const stream = session.request({ [constants.HTTP2_HEADER_METHOD]: 'POST', ...headers });
  stream.setTimeout(silenceMs, () => stream.destroy(new Error(`${silenceMs} ms of silence`)));
  const pieces: Buffer[] = [];
  let silence: Error | undefined;
  stream.on('response', learn).on('trailers', learn);
  stream.on('data', (piece: Buffer) => pieces.push(piece));
  stream.on('error', (error: Error) => {
    if (error.message.includes('silence')) silence = error;
  });
  stream.end(data);
  await new Promise((resolve) => stream.once('close', resolve));
  if (silence) throw silence;
  return { ...result, data: Buffer.concat(pieces) };
}
