import { join } from 'node:path';
import {
  logVerbosity,
  Server,
  ServerCredentials,
  setLogVerbosity,
  status,
  type Metadata,
  type ServiceDefinition,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { keyedCalls, keyedMethod, type GrpcAnswer, type ParsedCall, type SeenCall } from 'twiceproof/grpc';
import { isOrderId, validateCreate, validateSetStatus, whatIsWrong, type Create, type SetStatus } from './commands.ts';
import type { Created, StatusSet } from './effects.ts';
import type { Operations } from './operations.ts';
import { demoTenantFrom } from './principal.ts';

/** As the loader hands them over: 64-bit integers as text, since a double would round them without a word. */
interface CreateRequest {
  account_id: string;
  amount_cents: string;
}
interface SetStatusRequest {
  order_id: string;
  status: string;
}

const maxMessageBytes = 16_384;

export const ordersService = loadSync(join(import.meta.dirname, 'orders.proto'), {
  keepCase: true,
  longs: String,
  defaults: true,
})['twiceproof.orders.v1.Orders'] as ServiceDefinition;

// grpc-js writes metadata that it cannot read to stderr, with its value: that may be a token or a key.
setLogVerbosity(logVerbosity.NONE);

export interface GrpcOptions {
  operations: Operations;
  observe(seen: SeenCall): void;
}

export function createGrpcServer({ operations, observe }: GrpcOptions): Server {
  const methods = [
    keyedMethod(ordersService['Create']!, operations.create, { parse: parseCreate, render: { 1: renderCreated } }),
    keyedMethod(ordersService['SetStatus']!, operations.setStatus, {
      parse: parseSetStatus,
      render: { 1: renderStatusSet },
    }),
  ];
  const server = new Server({
    'grpc.max_receive_message_length': maxMessageBytes,
    interceptors: [keyedCalls({ methods, principal: tenantOf, observe })],
  });
  // No handlers: both methods are keyed.
  server.addService(ordersService, {});
  return server;
}

/** Answers the port. */
export async function listenGrpc(server: Server, host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(`${host}:${port}`, ServerCredentials.createInsecure(), (error, bound) => {
      if (error) reject(error);
      else resolve(bound);
    });
  });
}

function tenantOf(metadata: Metadata): string | undefined {
  const values = metadata.get('authorization');
  return values.length === 1 ? demoTenantFrom(values[0]) : undefined;
}

/** By the schema of the HTTP door, so that the two take the same. */
function parseCreate(request: CreateRequest, tenant: string): ParsedCall<Create> {
  const command = { account_id: Number(request.account_id), amount_cents: Number(request.amount_cents) };
  return validateCreate(command) ? { command: { tenant, ...command } } : { invalid: whatIsWrong(validateCreate) };
}

function parseSetStatus(request: SetStatusRequest, tenant: string): ParsedCall<SetStatus> {
  const body = { status: request.status };
  if (!validateSetStatus(body)) return { invalid: whatIsWrong(validateSetStatus) };
  const order_id = request.order_id.toLowerCase();
  return isOrderId(order_id)
    ? { command: { tenant, order_id, status: body.status } }
    : { invalid: 'the id of an order is a UUID' };
}

function renderCreated({ result: { order_id, status: state } }: { result: Created }): GrpcAnswer<Created> {
  return { response: { order_id, status: state } };
}

function renderStatusSet({ result }: { result: StatusSet }): GrpcAnswer<StatusSet> {
  return result.version === undefined
    ? {
        code: status.NOT_FOUND,
        details: 'There is no such order.',
        trailers: { 'twiceproof-problem': 'order-unknown' },
      }
    : { response: result };
}
