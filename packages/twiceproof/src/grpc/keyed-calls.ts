import { ServerInterceptingCall, status } from '@grpc/grpc-js';
import type { Metadata, ServerInterceptingCallInterface, ServerInterceptor } from '@grpc/grpc-js';
import { failureOf } from '../failure.ts';
import { traceparentOf } from '../edge/operation.ts';
import { parseIdempotencyKey, type ParsedKey } from '../http/idempotency-key.ts';
import { point } from '../points.ts';
import type { KeyedMethod } from './keyed-method.ts';
import { refused, type CallOutcome, type Told } from './refusal.ts';

export { keyedMethod } from './keyed-method.ts';
export type { GrpcAnswer, GrpcRender, KeyedMethod, KeyedMethodOptions, ParsedCall } from './keyed-method.ts';
export { refusalTable } from './refusal.ts';
export type { CallOutcome, RefusalName } from './refusal.ts';

/** One call that has been answered, for metrics and for whoever has to know of an error. */
export interface SeenCall {
  operation: string;
  outcome: CallOutcome;
  status: status;
  durationMs: number;
  /** What a client is never told. */
  error?: unknown;
}

export interface KeyedCallsOptions {
  methods: readonly KeyedMethod[];
  /**
   * As for the other doors: the authenticated caller or its tenant; undefined is answered by UNAUTHENTICATED. The call
   * knows more of the connection: `call.getAuthContext()` has the client's certificate.
   */
  principal(
    metadata: Metadata,
    call: ServerInterceptingCallInterface,
  ): string | undefined | Promise<string | undefined>;
  observe?(seen: SeenCall): void;
}

/**
 * The gRPC door: an interceptor that answers the keyed methods itself and lets every other call pass.
 *
 *     const server = new Server({ interceptors: [keyedCalls({ methods, principal })] });
 *     server.addService(service, handlers);
 *
 * `handlers` needs none for a keyed method: it would never run. Without one, a server that lacks the interceptor
 * answers UNIMPLEMENTED, and does nothing unkeyed. Interceptors before this one see its calls and its answers, those
 * behind it see neither. It should be the first: only then a message that grpc-js cannot decode is the client's fault
 * in the status too (see `blame`).
 */
export function keyedCalls(options: KeyedCallsOptions): ServerInterceptor {
  const byPath = new Map(options.methods.map((method) => [method.path, method]));
  return ({ path }, call) => {
    const method = byPath.get(path);
    return method ? keyedCall(method, options, call) : new ServerInterceptingCall(call);
  };
}

/**
 * Reads one message up to the end of the request, and answers. Nothing goes on to the handler. What grpc-js takes for the
 * end is carried out, also where the client has gone with one whole message sent; grpc-js drops the answer.
 */
function keyedCall(
  method: KeyedMethod,
  options: KeyedCallsOptions,
  call: ServerInterceptingCallInterface,
): ServerInterceptingCall {
  const sendStatus = call.sendStatus.bind(call);
  let metadata: Metadata;
  let message: { content: unknown } | undefined;
  let isRead = false;
  call.sendStatus = (given) => sendStatus(blame(given, isRead));
  const answer = async (content: unknown): Promise<void> => {
    const began = performance.now();
    const told = await carryOut(method, options, call, metadata, content);
    await point('grpc:committed');
    if ('response' in told) call.sendMessage(told.response, () => sendStatus(told.status));
    else sendStatus(told.status);
    if ('error' in told && !options.observe) console.error(`twiceproof/grpc: ${method.operation}:`, told.error);
    // Last, so that what it throws changes nothing.
    options.observe?.({
      operation: method.operation,
      outcome: told.outcome,
      status: told.status.code,
      durationMs: performance.now() - began,
      ...('error' in told && { error: told.error }),
    });
  };
  return new ServerInterceptingCall(call, {
    start: (next) =>
      next({
        onReceiveMetadata: (given) => {
          metadata = given;
          call.startRead();
        },
        onReceiveMessage: (content: unknown) => {
          if (message) return sendStatus(refused('body-malformed').status);
          message = { content };
          call.startRead();
        },
        onReceiveHalfClose: () => {
          isRead = true;
          if (!message) return sendStatus(refused('body-malformed').status);
          answer(message.content).catch((error: unknown) => process.emitWarning(`twiceproof/grpc: ${String(error)}`));
        },
      }),
  });
}

/** Never rejects. */
async function carryOut(
  method: KeyedMethod,
  { principal: principalOf }: KeyedCallsOptions,
  call: ServerInterceptingCallInterface,
  metadata: Metadata,
  request: unknown,
): Promise<Told> {
  try {
    const principal = await principalOf(metadata, call);
    if (!principal) return refused('unauthenticated');
    const parsed = keyOf(metadata);
    if ('problem' in parsed) return refused(parsed.problem);
    const traceparent = traceparentOf(metadata.get('traceparent')[0]);
    return await method.answer({ principal, key: parsed.key, traceparent }, request);
  } catch (error) {
    const failure = failureOf(error);
    return { ...refused(failure === 'unexpected' ? 'internal' : failure), error };
  }
}

/** A key is text. Whoever sends bytes too, or instead, means something that the other doors could not have been told. */
function keyOf(metadata: Metadata): ParsedKey {
  if (metadata.get('idempotency-key-bin').length > 0) return { problem: 'key-malformed' };
  return parseIdempotencyKey(metadata.get('idempotency-key').map(String));
}

type PartialStatus = Parameters<ServerInterceptingCallInterface['sendStatus']>[0];

/**
 * grpc-js ends a call by itself when it cannot decompress or decode the message, or cannot encode ours; it says
 * INTERNAL for all of them, by its own `sendStatus`, past every interceptor. Until the request is read only the client
 * can be the cause; afterwards the work is done, and only its answer is missing.
 */
function blame(given: PartialStatus, isRead: boolean): PartialStatus {
  if (given.code === status.INTERNAL) return refused(isRead ? 'outcome-unknown' : 'body-malformed').status;
  if (given.code === status.RESOURCE_EXHAUSTED && !isRead) return refused('body-too-large', given.details).status;
  return given;
}
