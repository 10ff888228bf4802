import { traceparentOf, type Check, type Operation } from '../edge/operation.ts';
import { requireKeptHeaders, type HttpAnswer } from './answer.ts';
import { callerOf, observed, told, toldOf, type DoorOptions, type Told } from './door.ts';
import type { ProblemName } from './problem.ts';

export { problem, problemTable, problemType } from './problem.ts';
export type { ProblemName } from './problem.ts';
export type { HttpAnswer } from './answer.ts';
export type { Seen } from './door.ts';
export { idempotentHandler, toResponse } from './fetch.ts';
export type { FetchHandlerOptions } from './fetch.ts';

/** What a request asks for; or why it is refused, which is not stored: the key stays free. */
export type ParsedRequest<Command> = { command: Command } | { problem: ProblemName; detail?: string };

/**
 * From the stored result to the answer. It must be pure: it runs again for each replay, and every run has to give the
 * same bytes. So it takes nothing but the result, and a new form of answer is a new version.
 */
export type Render<Result> = (outcome: { code: number; result: Result }) => HttpAnswer;

export interface HttpOperationOptions<R, Command, Result> extends DoorOptions<R> {
  /** The values of Idempotency-Key, one for each header line. */
  keyLines(request: R): readonly string[];
  parse(request: R, principal: string): ParsedRequest<Command>;
  /** The request's header of that name, to be carried on by messages. Defaults to none. */
  traceparent?(request: R): unknown;
  /** By the version of the operation that gave the result: old results are rendered as they were. */
  render: Readonly<Record<number, Render<Result>>>;
}

/** The HTTP door of an operation that may have others. Answers whatever happens; it never rejects. */
export function httpOperation<R, Command, Result>(
  operation: Operation<Command, Result>,
  options: HttpOperationOptions<R, Command, Result>,
): (request: R) => Promise<HttpAnswer> {
  const check = oncePerCode<Result>((outcome, version) => {
    rendered(operation.name, options.render, { ...outcome, version });
  });
  return async (request) => observed(operation.name, options, async () => answer(operation, options, request, check));
}

/** Each kind of outcome once, since to render all of them twice would cost every request. */
function oncePerCode<Result>(check: Check<Result>): Check<Result> {
  const passed = new Set<number>();
  return ({ code, result }, version) => {
    if (passed.has(code)) return;
    // As a door gets it, out of its stored form.
    check({ code, result: JSON.parse(JSON.stringify(result)) as Result }, version);
    passed.add(code);
  };
}

async function answer<R, Command, Result>(
  operation: Operation<Command, Result>,
  options: HttpOperationOptions<R, Command, Result>,
  request: R,
  check: Check<Result>,
): Promise<Told> {
  const who = options.principal(request);
  // Mostly it is known at once: to wait all the same would cost each request several turns of the queue of promises.
  const caller = callerOf(typeof who === 'object' ? await who : who, options.keyLines(request));
  if ('problem' in caller) return told(caller.problem);
  const parsed = options.parse(request, caller.principal);
  if ('problem' in parsed) return told(parsed.problem, parsed.detail === undefined ? {} : { detail: parsed.detail });
  const traceparent = traceparentOf(options.traceparent?.(request));
  const reply = await operation.run({ ...caller, traceparent }, parsed.command, check);
  if (reply.outcome !== 'answered') return toldOf(reply);
  if (reply.result === undefined) return told('answer-not-kept');
  try {
    return { answer: rendered(operation.name, options.render, reply), outcome: reply.replayed ? 'replayed' : 'first' };
  } catch (error) {
    // It is done, so nobody may hear that nothing was. Another process may know how to render it.
    return { ...told('outcome-unknown'), error };
  }
}

function rendered<Result>(
  name: string,
  renders: HttpOperationOptions<never, never, Result>['render'],
  { code, result, version }: { code: number; result: Result | undefined; version: number },
): HttpAnswer {
  const render = renders[version];
  if (!render) throw new Error(`${name} has a result of version ${version}, which nothing here renders`);
  const answered = render({ code, result: result as Result });
  requireKeptHeaders(answered.headers);
  return answered;
}
