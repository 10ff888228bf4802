import { Metadata, status } from '@grpc/grpc-js';
import type { OperationReply } from '../edge/operation.ts';

/** Every refusal that this door answers by itself. The names are those of the problems over HTTP (docs/problems.md). */
export const refusalTable = {
  unauthenticated: { code: status.UNAUTHENTICATED, details: 'It is not known who asks.' },
  'key-missing': { code: status.INVALID_ARGUMENT, details: 'The metadata has no idempotency-key.' },
  'key-malformed': {
    code: status.INVALID_ARGUMENT,
    details:
      'idempotency-key is one entry: a token of 1 to 255 letters, digits and "._:-", or a quoted string of 1 to 255 visible ASCII characters.',
  },
  'key-reused': { code: status.FAILED_PRECONDITION, details: 'This key was used for another request.' },
  'key-expired': {
    code: status.FAILED_PRECONDITION,
    details: 'This key is older than what is kept; whether it was used cannot be said.',
  },
  'answer-not-kept': {
    code: status.FAILED_PRECONDITION,
    details: 'The request was carried out once; its answer was too large to be kept.',
  },
  'body-malformed': { code: status.INVALID_ARGUMENT, details: 'The request is not one message that can be read.' },
  'body-too-large': { code: status.RESOURCE_EXHAUSTED, details: 'The message is too large.' },
  'request-invalid': { code: status.INVALID_ARGUMENT, details: 'The request is not valid.' },
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

/** How a call ends, as grpc-js sends it. */
export interface CallStatus {
  code: status;
  details: string;
  metadata: Metadata;
}

/** `first`: it was carried out now. Everything else changed nothing. */
export type CallOutcome = 'first' | 'replayed' | RefusalName;

/** What a client is told, and what is to be said of it. A `response` comes with the status OK, and with no other. */
export interface Told {
  status: CallStatus;
  response?: unknown;
  outcome: CallOutcome;
  /** What a client is never told. */
  error?: unknown;
}

export type Trailers = Readonly<Record<string, string | Uint8Array>>;

const retryAfterMs = 1_000;

/** The reason also as metadata, for programs; and when to come again, in the form that gRPC's own retries obey. */
export function refused(name: RefusalName, details?: string, afterMs = retryAfterMs): Told {
  const { code, details: general } = refusalTable[name];
  const trailers: Record<string, string> = { 'twiceproof-problem': name };
  if (code === status.UNAVAILABLE) trailers['grpc-retry-pushback-ms'] = String(afterMs);
  return { status: callStatus(code, details ?? general, trailers), outcome: name };
}

export function refusedReply(reply: Exclude<OperationReply<unknown>, { outcome: 'answered' }>): Told {
  switch (reply.outcome) {
    case 'mismatch':
      return refused('key-reused');
    case 'expired':
      return refused('key-expired');
    case 'busy':
      return refused('busy', undefined, reply.retryAfterMs);
  }
}

/** Throws if a trailer has a name or a value that cannot be sent. */
export function callStatus(code: status, details: string, trailers: Trailers = {}): CallStatus {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(trailers)) {
    metadata.set(name, typeof value === 'string' ? value : Buffer.from(value));
  }
  // Half of a surrogate pair would make grpc-js throw when it encodes the text.
  return { code, details: details.toWellFormed(), metadata };
}
