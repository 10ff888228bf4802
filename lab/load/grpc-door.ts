/**
 * Calls to one process over gRPC, all on one connection. A cut call is cancelled, which resets its stream; the
 * connection stays, for it is the others' too.
 *
 * grpc-js makes a lost connection again by itself, and with retries off it repeats no call behind our back. What it
 * says about an error does not tell whether the call was sent, so nothing is started while there is no connection,
 * and what is lost afterwards has an unknown outcome.
 */
import { join } from 'node:path';
import { Client, connectivityState, credentials, Metadata, status } from '@grpc/grpc-js';
import type { ClientUnaryCall, ServiceDefinition, StatusObject } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { addBytes, closeDigest, resetDigest } from './digest.ts';
import { createIdentity, uuidLength, writeUuid } from './identity.ts';
import type { Answer, Asked, Door, Line, OnDone, Reason } from './line.ts';
import { isUuid, isWord } from './named.ts';
import { isCut, type Send } from './plan.ts';

export interface GrpcOptions {
  principalHeader: string;
  seed: number;
  bornAtMs: number | undefined;
  maxResponseBytes: number;
}

const connectTimeoutMs = 5_000;

// The published description of the service: what goes over the wire, and none of its code.
const service = loadSync(join(import.meta.dirname, '../../apps/orders/orders.proto'), {
  keepCase: true,
  longs: String,
  defaults: true,
})['twiceproof.orders.v1.Orders'] as ServiceDefinition;

export function createGrpcDoor(address: string, size: number, options: GrpcOptions, onDone: OnDone): Door {
  const client = new Client(address, credentials.createInsecure(), {
    // Else clients of one process share their connections.
    'grpc.use_local_subchannel_pool': 1,
    'grpc.enable_http_proxy': 0,
    'grpc.enable_retries': 0,
    'grpc.initial_reconnect_backoff_ms': 10,
    'grpc.max_reconnect_backoff_ms': 250,
    // A peer that vanished without a word is noticed after twice that.
    'grpc.keepalive_time_ms': 5_000,
    'grpc.keepalive_timeout_ms': 5_000,
    'grpc.max_receive_message_length': options.maxResponseBytes,
  });
  const channel = client.getChannel();
  return {
    lines: Array.from({ length: size }, () => createLine(client, options, onDone)),
    open: () =>
      new Promise((resolve, reject) => {
        client.waitForReady(Date.now() + connectTimeoutMs, (error) => {
          if (error) reject(new Error(`nobody serves gRPC at ${address}: ${error.message}`));
          else resolve();
        });
      }),
    admits: () => channel.getConnectivityState(true) === connectivityState.READY,
    close: () => client.close(),
  };
}

interface Request extends Asked {
  fill(send: Send): void;
  message(): object;
  metadata(): Metadata;
}

function createRequest({ principalHeader, seed, bornAtMs }: GrpcOptions): Request {
  const identity = createIdentity(seed, bornAtMs);
  const [principalName = '', principal = ''] = principalHeader.split(/: (.*)/);
  const keyBytes = Buffer.alloc(uuidLength);
  let send: Send | undefined;
  const request: Request = {
    accountId: 0,
    amountCents: 0,
    status: identity.status,
    fill(given) {
      send = given;
      identity.become(given.keyNumber);
      writeUuid(keyBytes, 0, identity.words);
      Object.assign(request, {
        accountId: identity.accountId,
        amountCents: identity.amountCents,
        status: identity.status,
      });
    },
    key: () => keyBytes.toString('latin1'),
    message: () =>
      send?.operation === 'set-status'
        ? { order_id: send.order!.id, status: request.status }
        : { account_id: request.accountId, amount_cents: request.amountCents },
    metadata() {
      const metadata = new Metadata();
      metadata.set(principalName, principal);
      metadata.set('idempotency-key', request.key());
      return metadata;
    },
  };
  return request;
}

function createLine(client: Client, options: GrpcOptions, onDone: OnDone): Line {
  const request = createRequest(options);
  const reply = createReply();
  let call: ClientUnaryCall | undefined;
  const finish = (reason: Reason): void => {
    const send = line.current;
    line.current = call = undefined;
    if (send) onDone(line, send, reason);
  };
  const line: Line = {
    door: 'grpc',
    asked: request,
    answer: reply,
    current: undefined,
    prepare(send) {
      line.current = send;
      request.fill(send);
    },
    start() {
      const send = line.current!;
      const method = service[send.operation === 'create' ? 'Create' : 'SetStatus']!;
      const { path, requestSerialize, responseDeserialize } = method;
      let bytes: Buffer | undefined;
      let initial: Metadata | undefined;
      const keep = (buffer: Buffer): Buffer => (bytes = buffer);
      const mine = client.makeUnaryRequest(
        path,
        requestSerialize,
        keep,
        request.message(),
        request.metadata(),
        () => {},
      );
      call = mine;
      mine.on('metadata', (given: Metadata) => {
        initial = given;
      });
      mine.on('status', (given: StatusObject) => {
        if (call !== mine) return;
        reply.take(given, initial, bytes, responseDeserialize);
        finish(isCut(send) ? 'cut' : reply.isOfServer ? 'answered' : 'reset');
      });
      if (!isCut(send)) return;
      const cut = (): void => {
        if (call === mine) line.abandon('cut');
      };
      if (send.kind === 'cut-answer') mine.on('metadata', cut);
      // By then the stream is open and the message with its end is written: the server carries it out.
      else setImmediate(cut);
    },
    abandon(reason) {
      const mine = call;
      finish(reason);
      mine?.cancel();
    },
  };
  return line;
}

interface Reply extends Answer {
  /** And not an error that the library has made up because there was no answer. */
  isOfServer: boolean;
  take(
    given: StatusObject,
    initial: Metadata | undefined,
    bytes: Buffer | undefined,
    deserialize: (bytes: Buffer) => unknown,
  ): void;
}

interface Named {
  order_id?: string;
  status?: string;
  version?: number;
}

function createReply(): Reply {
  let text = '';
  let read: () => Named = () => ({});
  const reply: Reply = {
    status: 0,
    digest: { a: 0, b: 0 },
    isOfServer: false,
    take({ code, details, metadata }, initial, bytes, deserialize) {
      const { date: _, ...trailers } = metadata.getMap();
      const { date: __, ...headers } = initial?.getMap() ?? {};
      const message = bytes?.toString('hex') ?? '';
      text = JSON.stringify([code, details, headers, trailers, message]);
      read = () => (bytes ? (deserialize(bytes) as Named) : {});
      reply.status = code;
      // A service that refuses says why in its trailers.
      reply.isOfServer = code === status.OK ? bytes !== undefined : Object.keys(trailers).length > 0;
      const all = Buffer.from(text);
      resetDigest(reply.digest);
      addBytes(reply.digest, all, 0, all.length);
      closeDigest(reply.digest);
    },
    orderId() {
      const { order_id: id = '' } = read();
      return isUuid(id) ? id : undefined;
    },
    version: () => read().version,
    orderStatus() {
      const { status: word = '' } = read();
      return isWord(word) ? word : undefined;
    },
    sample: (maxBytes) => text.slice(0, maxBytes),
  };
  return reply;
}
