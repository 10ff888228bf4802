/** gRPC by a client of our own, from the published description of the service. */
import { join } from 'node:path';
import { Client, credentials, Metadata, status, type ServiceDefinition, type StatusObject } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { attemptTimeoutMs, type Answer, type Asked, type Attempt } from './asked.ts';

export interface GrpcDoor {
  ask(asked: Asked): Promise<Attempt>;
  close(): void;
}

const service = loadSync(join(import.meta.dirname, '../../apps/orders/orders.proto'), {
  keepCase: true,
  longs: String,
  defaults: true,
})['twiceproof.orders.v1.Orders'] as ServiceDefinition;

const connectTimeoutMs = 10_000;

export async function openGrpcDoor(address: string): Promise<GrpcDoor> {
  // Else clients of one process share their connections, and its end would be somebody else's too.
  const client = new Client(address, credentials.createInsecure(), { 'grpc.use_local_subchannel_pool': 1 });
  await new Promise<void>((resolve, reject) => {
    client.waitForReady(Date.now() + connectTimeoutMs, (error) => (error ? reject(error) : resolve()));
  });
  return { ask: async (asked) => attemptOf(asked, await call(client, asked)), close: () => client.close() };
}

interface Called {
  code: status;
  details: string;
  headers: Record<string, unknown>;
  trailers: Record<string, unknown>;
  response?: Omit<Answer, 'text'>;
  /** Of the message as it came over the wire. */
  bytes?: string;
}

async function call(client: Client, asked: Asked): Promise<Called> {
  const { path, requestSerialize, responseDeserialize } = service['create' in asked ? 'Create' : 'SetStatus']!;
  const request = 'create' in asked ? asked.create : asked.setStatus;
  const metadata = new Metadata();
  metadata.set('authorization', `Bearer ${asked.tenant}`);
  metadata.set('idempotency-key', asked.key);
  const message: Pick<Called, 'response' | 'bytes'> = {};
  const deserialize = (buffer: Buffer): void => {
    message.bytes = buffer.toString('hex');
    message.response = responseDeserialize(buffer) as Omit<Answer, 'text'>;
  };
  let headers = {};
  return new Promise((resolve) => {
    const deadline = Date.now() + attemptTimeoutMs;
    client
      .makeUnaryRequest(path, requestSerialize, deserialize, request, metadata, { deadline }, () => {})
      .on('metadata', (given: Metadata) => {
        headers = withoutDate(given);
      })
      .on('status', ({ code, details, metadata: trailers }: StatusObject) => {
        resolve({ code, details, headers, trailers: withoutDate(trailers), ...message });
      });
  });
}

function withoutDate(metadata: Metadata): Record<string, unknown> {
  const { date: _, ...rest } = metadata.getMap();
  return rest;
}

function attemptOf({ key }: Asked, called: Called): Attempt {
  const text = JSON.stringify(called);
  if (called.code === status.OK && called.response) return { answer: { ...called.response, text } };
  // A status without the service's word for it comes from the connection, and is no answer.
  const isOfTheService = 'twiceproof-problem' in called.trailers;
  if (isOfTheService && called.code !== status.UNAVAILABLE) throw new Error(`${key} was answered by ${text}`);
  return { failure: text };
}
