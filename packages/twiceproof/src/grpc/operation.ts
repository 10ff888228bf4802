import { Metadata, status } from '@grpc/grpc-js';
import type { handleUnaryCall, ServerUnaryCall } from '@grpc/grpc-js';
import { failureOf } from '../edge/failure.ts';
import type { Operation, OperationReply } from '../edge/operation.ts';
import { parseIdempotencyKey } from '../http/idempotency-key.ts';

/** What a request asks for; or why it is refused, which is not stored: the key stays free. */
export type ParsedCall<Command> = { command: Command } | { invalid: string };

/** A message, or a status other than OK. */
export type GrpcAnswer<Response> = ({ response: Response } | { code: status; details: string }) & {
  /** Trailing metadata, by name in small letters. */
  trailers?: Readonly<Record<string, string>>;
};

/** From the stored result to the answer. It must be pure: it runs again for each replay. */
export type GrpcRender<Result, Response> = (outcome: { code: number; result: Result }) => GrpcAnswer<Response>;

/** One call that has been answered, for metrics and for whoever has to know of an error. */
export interface SeenCall {
  operation: string;
  /** `first`: it was carried out now. Everything else changed nothing. */
  outcome: 'first' | 'replayed' | RefusalName;
  status: status;
  durationMs: number;
  /** What a client is never told. */
  error?: unknown;
}

export interface GrpcOperationOptions<Request, Response, Command, Result> {
  /** As for the other doors: the authenticated caller or its tenant; undefined is answered by UNAUTHENTICATED. */
  principal(call: ServerUnaryCall<Request, Response>): string | undefined | Promise<string | undefined>;
  parse(request: Request, principal: string): ParsedCall<Command>;
  /** By the version of the operation that gave the result. */
  render: Readonly<Record<number, GrpcRender<Result, Response>>>;
  observe?(seen: SeenCall): void;
}

/** Every refusal that this door answers by itself. The names are those of the problems over HTTP (docs/problems.md). */
export const refusalTable = {
  unauthenticated: { code: status.UNAUTHENTICATED, details: 'It is not known who asks.' },
  'key-missing': { code: status.INVALID_ARGUMENT, details: 'The metadata has no idempotency-key.' },
  'key-malformed': {
    code: status.INVALID_ARGUMENT,
    details:
      'idempotency-key is one entry: a token of 1 to 255 letters, digits and "._:-", or a quoted string of 1 to 255 visible ASCII characters.',
  },
  'request-invalid': { code: status.INVALID_ARGUMENT, details: 'The request is not valid.' },
  'key-reused': { code: status.FAILED_PRECONDITION, details: 'This key was used for another request.' },
  'key-expired': {
    code: status.FAILED_PRECONDITION,
    details: 'This key is older than what is kept; whether it was used cannot be said.',
  },
  'answer-not-kept': {
    code: status.FAILED_PRECONDITION,
    details: 'The request was carried out once; its answer was too large to be kept.',
  },
  busy: {
    code: status.UNAVAILABLE,
    details: 'Another request with this key is under way, or too many are; repeat with this key.',
  },
  unavailable: {
    code: status.UNAVAILABLE,
    details: 'The request cannot be carried out now; repeat with the same key.',
  },
  'outcome-unknown': {
    code: status.UNAVAILABLE,
    details: 'Whether the request was carried out is not known yet; repeat with the same key.',
  },
  internal: {
    code: status.INTERNAL,
    details: 'Something failed here. Nothing was done; the same key may be used again.',
  },
} as const satisfies Record<string, { code: status; details: string }>;

export type RefusalName = keyof typeof refusalTable;

interface Told<Response> {
  answer: GrpcAnswer<Response>;
  outcome: SeenCall['outcome'];
}

/** The gRPC door of an operation that may have others: a unary method. A client that hangs up changes nothing. */
export function grpcOperation<Request, Response, Command, Result>(
  operation: Operation<Command, Result>,
  options: GrpcOperationOptions<Request, Response, Command, Result>,
): handleUnaryCall<Request, Response> {
  const handle = async (call: ServerUnaryCall<Request, Response>): Promise<Told<Response> & { error?: unknown }> => {
    try {
      return await answer(operation, options, call);
    } catch (error) {
      const failure = failureOf(error);
      return { ...refused(failure === 'unexpected' ? 'internal' : failure), error };
    }
  };
  return (call, callback) => {
    const began = performance.now();
    handle(call)
      .then(({ answer: given, outcome, error }) => {
        const code = 'code' in given ? given.code : status.OK;
        options.observe?.({
          operation: operation.name,
          outcome,
          status: code,
          durationMs: performance.now() - began,
          ...(error !== undefined && { error }),
        });
        const trailers = toMetadata(given.trailers);
        if ('code' in given) callback({ code, details: given.details, metadata: trailers });
        else callback(null, given.response, trailers);
      })
      // `handle` never rejects: `observe` has thrown, or a rendered message cannot be encoded.
      .catch(() => callback(refusalTable.internal));
  };
}

async function answer<Request, Response, Command, Result>(
  operation: Operation<Command, Result>,
  options: GrpcOperationOptions<Request, Response, Command, Result>,
  call: ServerUnaryCall<Request, Response>,
): Promise<Told<Response>> {
  const principal = await options.principal(call);
  if (!principal) return refused('unauthenticated');
  const parsedKey = parseIdempotencyKey(call.metadata.get('idempotency-key').map(String));
  if ('problem' in parsedKey) return refused(parsedKey.problem);
  const parsed = options.parse(call.request, principal);
  if ('invalid' in parsed) return refused('request-invalid', parsed.invalid);
  const reply = await operation.run({ principal, key: parsedKey.key }, parsed.command);
  if (reply.outcome !== 'answered') return refusedReply(reply);
  const { code, result, version, replayed } = reply;
  if (result === undefined) return refused('answer-not-kept');
  const render = options.render[version];
  if (!render) throw new Error(`${operation.name} has a result of version ${version}, which nothing here renders`);
  return { answer: render({ code, result }), outcome: replayed ? 'replayed' : 'first' };
}

function refusedReply(reply: Exclude<OperationReply<unknown>, { outcome: 'answered' }>): Told<never> {
  switch (reply.outcome) {
    case 'mismatch':
      return refused('key-reused');
    case 'expired':
      return refused('key-expired');
    case 'busy':
      return refused('busy', undefined, reply.retryAfterMs);
  }
}

const retryAfterMs = 1_000;

/** The reason also as metadata, for programs; and when to come again, in the form that gRPC's own retries obey. */
function refused(name: RefusalName, details?: string, afterMs = retryAfterMs): Told<never> {
  const { code, details: general } = refusalTable[name];
  const trailers: Record<string, string> = { 'twiceproof-problem': name };
  if (code === status.UNAVAILABLE) trailers['grpc-retry-pushback-ms'] = String(afterMs);
  return { answer: { code, details: details ?? general, trailers }, outcome: name };
}

function toMetadata(trailers: Readonly<Record<string, string>> = {}): Metadata {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(trailers)) metadata.set(name, value);
  return metadata;
}
