import { status, type MethodDefinition } from '@grpc/grpc-js';
import type { Caller, Operation, OperationReply } from '../edge/operation.ts';
import { TwiceproofError } from '../errors.ts';
import { callStatus, refused, refusedReply, type Told, type Trailers } from './refusal.ts';

/** What a request asks for; or why it is refused, which is not stored: the key stays free. */
export type ParsedCall<Command> = { command: Command } | { invalid: string };

/** A message, or a status other than OK. */
export type GrpcAnswer<Response> = ({ response: Response } | { code: Exclude<status, status.OK>; details: string }) & {
  /** Trailing metadata, by name in small letters; bytes for a name that ends in `-bin`. */
  trailers?: Trailers;
};

/** From the stored result to the answer. It must be pure: it runs again for each replay. */
export type GrpcRender<Result, Response> = (outcome: { code: number; result: Result }) => GrpcAnswer<Response>;

export interface KeyedMethodOptions<Request, Response, Command, Result> {
  parse(request: Request, principal: string): ParsedCall<Command>;
  /** By the version of the operation that gave the result: old results are rendered as they were. */
  render: Readonly<Record<number, GrpcRender<Result, Response>>>;
}

/** A unary method that an operation carries out, for `keyedCalls`. */
export interface KeyedMethod {
  readonly path: string;
  /** The operation's name. */
  readonly operation: string;
  answer(caller: Caller, request: unknown): Promise<Told>;
}

export function keyedMethod<Request, Response, Command, Result>(
  definition: MethodDefinition<Request, Response>,
  operation: Operation<Command, Result>,
  { parse, render }: KeyedMethodOptions<Request, Response, Command, Result>,
): KeyedMethod {
  const { path, requestStream, responseStream } = definition;
  if (requestStream || responseStream) {
    throw new TwiceproofError('TP_OPTION', `${path} is a streaming method; only a unary one can have a key`);
  }
  return {
    path,
    operation: operation.name,
    answer: async (caller, request) => {
      // grpc-js has decoded it by this very definition.
      const parsed = parse(request as Request, caller.principal);
      if ('invalid' in parsed) return refused('request-invalid', parsed.invalid);
      const reply = await operation.run(caller, parsed.command);
      if (reply.outcome !== 'answered') return refusedReply(reply);
      try {
        return rendered(operation.name, render, reply);
      } catch (error) {
        // It is done, so nobody may hear that nothing was. Another process may know how to render it.
        return { ...refused('outcome-unknown'), error };
      }
    },
  };
}

function rendered<Result, Response>(
  operation: string,
  renders: Readonly<Record<number, GrpcRender<Result, Response>>>,
  { code, result, version, replayed }: Extract<OperationReply<Result>, { outcome: 'answered' }>,
): Told {
  if (result === undefined) return refused('answer-not-kept');
  const render = renders[version];
  if (!render) throw new Error(`${operation} has a result of version ${version}, which nothing here renders`);
  const answer = render({ code, result });
  const outcome = replayed ? 'replayed' : 'first';
  if ('code' in answer) return { status: callStatus(answer.code, answer.details, answer.trailers), outcome };
  return { status: callStatus(status.OK, 'OK', answer.trailers), response: answer.response, outcome };
}
