import { TwiceproofError, type ErrorCode } from '../errors.ts';

/** As much of the client's errors as we look at: they are trees, one leaf for each attempt, broker or partition. */
interface ClientError {
  code?: string;
  apiId?: string;
  message?: string;
  errors?: readonly unknown[];
  cause?: unknown;
  response?: unknown;
}

/** The error and everything in it, outermost first, attempts in their order. */
export function* walkErrors(error: unknown): Generator<ClientError> {
  if (typeof error !== 'object' || error === null) return;
  const node = error as ClientError;
  yield node;
  for (const inner of node.errors ?? []) yield* walkErrors(inner);
  yield* walkErrors(node.cause);
}

/** Kafka's names for a member that the group does not count on any more, or not in this generation. */
const fencedIds = new Set([
  'ILLEGAL_GENERATION',
  'UNKNOWN_MEMBER_ID',
  'FENCED_INSTANCE_ID',
  'REBALANCE_IN_PROGRESS',
  'STALE_MEMBER_EPOCH',
]);

export function isFenced(error: unknown): boolean {
  return [...walkErrors(error)].some(({ apiId }) => apiId !== undefined && fencedIds.has(apiId));
}

export function hasApiId(error: unknown, id: string): boolean {
  return [...walkErrors(error)].some(({ apiId }) => apiId === id);
}

/** The client replaces the broker's answer by this message and keeps nothing else of it. */
const unknownTopicMessage = 'Unknown topic ';

export function saysUnknownTopic(error: unknown, topic: string): boolean {
  return [...walkErrors(error)].some(({ message }) => message === `${unknownTopicMessage}${topic}.`);
}

const notAuthorized = new Set([
  'TOPIC_AUTHORIZATION_FAILED',
  'GROUP_AUTHORIZATION_FAILED',
  'CLUSTER_AUTHORIZATION_FAILED',
  'SASL_AUTHENTICATION_FAILED',
]);

/** Our error for one of the client's. What we cannot name is a broker that cannot be reached or asked now. */
export function toTwiceproofError(error: unknown, doing: string): TwiceproofError {
  if (error instanceof TwiceproofError) return error;
  const detail = `${doing}: ${innermostMessage(error)}`;
  return new TwiceproofError(codeOf(error), detail, { cause: error });
}

function codeOf(error: unknown): ErrorCode {
  for (const { apiId, code, message } of walkErrors(error)) {
    if (apiId !== undefined && notAuthorized.has(apiId)) return 'TP_NOT_AUTHORIZED';
    if (code === 'PLT_KFK_AUTHENTICATION') return 'TP_NOT_AUTHORIZED';
    if (apiId === 'INVALID_TOPIC_EXCEPTION') return 'TP_TOPIC_UNKNOWN';
    if (code === 'PLT_KFK_USER' && message?.startsWith(unknownTopicMessage)) return 'TP_TOPIC_UNKNOWN';
  }
  return 'TP_BROKER_UNREACHABLE';
}

function innermostMessage(error: unknown): string {
  const messages = [...walkErrors(error)].filter((node) => !node.errors && !node.cause).map((node) => node.message);
  return messages.at(-1) ?? String(error);
}
