/** For the tests here: the real program as a child process, and clients that see every byte. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { credentials, Client, Metadata, type ServiceError, type StatusObject } from '@grpc/grpc-js';
import { ordersService } from './grpc.ts';

export interface Orders {
  http: string;
  grpc: string;
  admin: string;
  pid: number;
  signal(name: NodeJS.Signals): void;
  /** SIGTERM; answers the exit code, once it has ended. */
  stop(): Promise<number | null>;
  exited: Promise<number | null>;
  stderr(): string;
}

export async function startOrders(
  databaseUrl: string,
  args: readonly string[] = [],
  env: NodeJS.ProcessEnv = {},
): Promise<Orders> {
  const child = spawn(
    process.execPath,
    ['--conditions=twiceproof-source', join(import.meta.dirname, 'main.ts'), '--json', ...portFlags, ...args],
    { env: { ...process.env, DATABASE_URL: databaseUrl, ...env }, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const exited = once(child, 'close').then(([code]) => code as number | null);
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([once(lines, 'line').then(([line]) => String(line)), exited]);
  // The first line says that it is ready, or why it never will be.
  if (typeof first !== 'string' || !first.startsWith('{"ready":true,')) {
    throw new Error(`orders ended with ${await exited}: ${stderr}`);
  }
  const { http, grpc, admin, pid } = JSON.parse(first) as Pick<Orders, 'http' | 'grpc' | 'admin' | 'pid'>;
  return {
    http,
    grpc,
    admin,
    pid,
    signal: (name) => child.kill(name),
    stop: async () => {
      child.kill('SIGTERM');
      return exited;
    },
    exited,
    stderr: () => stderr,
  };
}

const portFlags = ['--port=0', '--grpc-port=0', '--admin-port=0'];

/** The text of one HTTP/1.1 request. */
export function requestText(
  path: string,
  { key, tenant = 'tenant-1', body, headers = [], method = 'POST', connection = 'close' }: RequestParts,
): string {
  const lines = [`${method} ${path} HTTP/1.1`, 'host: localhost', `connection: ${connection}`];
  if (tenant) lines.push(`authorization: Bearer ${tenant}`);
  if (key !== undefined) lines.push(`idempotency-key: ${key}`);
  const text = body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body);
  if (body !== undefined) lines.push('content-type: application/json', `content-length: ${Buffer.byteLength(text)}`);
  return `${[...lines, ...headers].join('\r\n')}\r\n\r\n${text}`;
}

export interface RequestParts {
  key?: string;
  tenant?: string;
  body?: unknown;
  headers?: readonly string[];
  method?: string;
  /** Orders has a way of its own for requests that keep theirs. */
  connection?: 'close' | 'keep-alive';
}

/** Everything that came back over the socket, but the line that says when. */
export async function exchange(origin: string, request: string): Promise<string> {
  const { hostname, port } = new URL(origin);
  const socket = connect(Number(port), hostname);
  socket.write(request); // Not `end`: Node takes a half-closed connection for one that is gone.
  let raw = '';
  for await (const piece of socket) {
    raw += (piece as Buffer).toString('latin1');
    if (isWholeAndKept(raw)) break;
  }
  return raw.replace(/^date: .*\r\n/im, '');
}

/** Where the connection is kept, its end does not tell that of the answer. */
function isWholeAndKept(raw: string): boolean {
  const [, head = '', body] = /^(.*?\r\n)\r\n(.*)$/s.exec(raw) ?? [];
  const length = /^content-length: (\d+)\r\n/im.exec(head)?.[1];
  return /^connection: keep-alive\r\n/im.test(head) && body?.length === Number(length);
}

export function statusOf(raw: string): number {
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(raw)?.[1]);
}

export function bodyOf(raw: string): Record<string, unknown> {
  return JSON.parse(raw.slice(raw.indexOf('\r\n\r\n') + 4)) as Record<string, unknown>;
}

export interface GrpcResult {
  code: number;
  details: string;
  trailers: Record<string, unknown>;
  response?: Record<string, unknown>;
  /** Of the message as it came over the wire. */
  bytes?: string;
}

export interface GrpcOrders {
  call(
    method: 'Create' | 'SetStatus',
    request: object,
    metadata: Record<string, string | string[]>,
  ): Promise<GrpcResult>;
  close(): void;
}

export async function grpcClient(address: string): Promise<GrpcOrders> {
  const client = new Client(address, credentials.createInsecure());
  await new Promise<void>((resolve, reject) => {
    client.waitForReady(Date.now() + 5_000, (error) => (error ? reject(error) : resolve()));
  });
  return {
    close: () => client.close(),
    call: async (method, request, entries) =>
      new Promise((resolve) => {
        const { path, requestSerialize, responseDeserialize } = ordersService[method]!;
        const metadata = new Metadata();
        for (const [name, values] of Object.entries(entries)) {
          for (const value of [values].flat()) metadata.add(name, value);
        }
        let bytes = '';
        const deserialize = (buffer: Buffer): Record<string, unknown> => {
          bytes = buffer.toString('hex');
          return responseDeserialize(buffer) as Record<string, unknown>;
        };
        let answer: { error: ServiceError | null; response: Record<string, unknown> | undefined } | undefined;
        let status: StatusObject | undefined;
        const settle = (): void => {
          if (!answer || !status) return;
          const { response } = answer;
          const { code, details, metadata: trailers } = status;
          const { date: _, ...rest } = trailers.getMap();
          resolve({ code, details, trailers: rest, ...(response && { response, bytes }) });
        };
        client
          .makeUnaryRequest(path, requestSerialize, deserialize, request, metadata, (error, response) => {
            answer = { error, response };
            settle();
          })
          .on('status', (given: StatusObject) => {
            status = given;
            settle();
          });
      }),
  };
}
