import { hash } from 'node:crypto';
import type { Answer, Intent } from '../idempotency/intent.ts';
import type { Tx } from '../tx.ts';
import { createGroupEdge, type GroupEdgeOptions } from './group.ts';
import { createPlannedEdge, type Plan, type PlannedEdgeOptions } from './planned.ts';
import { createHandlerEdge, type HandlerEdgeOptions } from './handler.ts';
import type { Reply } from './reply.ts';

/**
 * Something that clients can ask for, under a key, through one door or several. What is stored is the result; each door
 * renders its own answer from it by a pure function, so that every repetition through a door gives the same bytes.
 */
export interface Operation<Command, Result> {
  readonly name: string;
  /** What `check` throws at an outcome that is new is an error like that of the operation itself: nothing is done. */
  run(caller: Caller, command: Command, check?: Check<Result>): Promise<OperationReply<Result>>;
}

export interface Caller {
  /** The tenant or the authenticated caller, found out by the server; never what a client merely says. */
  principal: string;
  key: string;
  /** Of the request, for the headers of messages (W3C Trace Context). It is no part of what is asked for: a retry has another. */
  traceparent?: string | undefined;
}

/** By a door, before an outcome is committed: whether it could be answered. */
export type Check<Result> = (outcome: Outcome<Result>, version: number) => void;

/** A command on its way, and who has asked for it first. */
interface Asked<Command, Result> {
  command: Command;
  caller: Caller;
  check: Check<Result> | undefined;
}

/** What an operation comes to. `code` is as in HTTP, and says what kind of result it is; doors translate it. */
export interface Outcome<Result> {
  code: number;
  result: Result;
}

export type OperationReply<Result> =
  | {
      outcome: 'answered';
      code: number;
      /** As it was stored, so without what JSON cannot hold. Undefined: it was too large to be kept. */
      result: Result | undefined;
      /** The version of the operation that gave it. */
      version: number;
      replayed: boolean;
    }
  | Exclude<Reply, { outcome: 'answered' }>;

interface Naming {
  name: string;
  /** Raise it when the result changes its form; doors choose by it how to render an old one. Defaults to 1. */
  version?: number;
}

/** One transaction for each request, with any SQL. For whatever is not asked for thousands of times a second. */
export function handlerOperation<Command, Result>(
  options: HandlerEdgeOptions &
    Naming & { execute(tx: Tx, command: Command, caller: Caller): Promise<Outcome<Result>> },
): Operation<Command, Result> {
  const edge = createHandlerEdge(options);
  const { name, version = 1, execute } = options;
  return {
    name,
    run: async (caller, command, check) =>
      toOperationReply(
        await edge.run(toIntent(name, caller, command), async (tx) =>
          toAnswer(await execute(tx, command, caller), version, check),
        ),
      ),
  };
}

/** One transaction for all that have come meanwhile. For what is asked for often, and can be done by set. */
export function groupOperation<Command, Result>(
  options: Omit<GroupEdgeOptions<Command>, 'effects'> &
    Naming & {
      /** An outcome for each command, at the same index; `callers` has them at the same index too. */
      effects(tx: Tx, commands: readonly Command[], callers: readonly Caller[]): Promise<readonly Outcome<Result>[]>;
    },
): Operation<Command, Result> {
  const { name, version = 1, effects, exclusive, ...rest } = options;
  const edge = createGroupEdge<Asked<Command, Result>>({
    ...rest,
    ...(exclusive && { exclusive: ({ command }) => exclusive(command) }),
    effects: async (tx, asked) => {
      const commands = asked.map(({ command }) => command);
      const callers = asked.map(({ caller }) => caller);
      const outcomes = await effects(tx, commands, callers);
      return outcomes.map((outcome, n) => toAnswer(outcome, version, asked[n]?.check));
    },
  });
  return {
    name,
    run: async (caller, command, check) =>
      toOperationReply(await edge.run(toIntent(name, caller, command), { command, caller, check })),
  };
}

/**
 * As `groupOperation`, in one round trip, for what comes to the same whatever is in the database: a new row, a message
 * that is passed on. The answer is known before, so claims, answers, effects and messages are one statement.
 */
export function plannedOperation<Command, Result, Row>(
  options: Omit<PlannedEdgeOptions<Command, Row>, 'plan'> &
    Naming & { plan(command: Command, caller: Caller): Omit<Plan<Row>, 'answer'> & { outcome: Outcome<Result> } },
): Operation<Command, Result> {
  const { name, version = 1, plan, exclusive, ...rest } = options;
  const edge = createPlannedEdge<Asked<Command, Result>, Row>({
    ...rest,
    ...(exclusive && { exclusive: ({ command }) => exclusive(command) }),
    plan: ({ command, caller, check }) => {
      const { outcome, ...planned } = plan(command, caller);
      return { ...planned, answer: toAnswer(outcome, version, check) };
    },
  });
  return {
    name,
    run: async (caller, command, check) =>
      toOperationReply(await edge.run(toIntent(name, caller, command), { command, caller, check })),
  };
}

const commandHashVersion = 1;

/** Over the validated command, so that it is the same through every door. */
function toIntent(operation: string, { principal, key }: Caller, command: unknown): Intent {
  const requestHash = hash('sha256', canonicalJson(command), 'hex');
  return { principal, operation, key, requestHash, hashVersion: commandHashVersion };
}

function toAnswer<Result>(outcome: Outcome<Result>, version: number, check: Check<Result> | undefined): Answer {
  const { code, result } = outcome;
  check?.(outcome, version);
  return { code, headers: null, body: Buffer.from(JSON.stringify(result)), version };
}

/** The first answer too goes through its stored form, or it could differ from the ones that follow. */
function toOperationReply<Result>(reply: Reply): OperationReply<Result> {
  if (reply.outcome !== 'answered') return reply;
  const { code, body, version } = reply.answer;
  const result = body
    ? (JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString()) as Result)
    : undefined;
  return { outcome: 'answered', code, result, version, replayed: reply.replayed };
}

/** The value of a `traceparent` header if it has the form of one; a wrong one is no reason to refuse a request. */
export function traceparentOf(value: unknown): string | undefined {
  return typeof value === 'string' && /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(value)
    ? value
    : undefined;
}

/** JSON with the keys of objects in order: the same text for the same value. */
export function canonicalJson(value: unknown): string {
  if (value === null || typeof value !== 'object') return JSON.stringify(value) ?? 'null';
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (hasOwnForm(value)) return canonicalJson(value.toJSON());
  const fields = value as Readonly<Record<string, unknown>>;
  let text = '';
  for (const name of inOrder(Object.keys(fields))) {
    if (fields[name] === undefined) continue;
    text += `${text && ','}${JSON.stringify(name)}:${canonicalJson(fields[name])}`;
  }
  return `{${text}}`;
}

/** Commands are made by one function, with their fields in one order, and mostly that is this one. */
function inOrder(names: string[]): string[] {
  for (let n = 1; n < names.length; n += 1) if (names[n - 1]! > names[n]!) return names.sort();
  return names;
}

/** As a Date has. */
function hasOwnForm(value: object): value is { toJSON(): unknown } {
  return typeof (value as { toJSON?: unknown }).toJSON === 'function';
}
