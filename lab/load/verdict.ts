/**
 * ok: it was done. fail: surely nothing was done, that is a refusal by the server, or it was never sent. unknown:
 * anything else; we do not take a server's word that a 5xx changed nothing.
 */
import { status as code } from '@grpc/grpc-js';
import type { DoorKind, Reason } from './line.ts';

export type Verdict = 'ok' | 'fail' | 'unknown';

export function verdictOf(door: DoorKind, reason: Reason, status: number): Verdict {
  if (reason === 'refused' || reason === 'no-connection') return 'fail';
  if (reason !== 'answered') return 'unknown';
  if (door === 'grpc') return grpcVerdictOf(status);
  if (status >= 200 && status < 300) return 'ok';
  return status >= 400 && status < 500 ? 'fail' : 'unknown';
}

function grpcVerdictOf(given: code): Verdict {
  if (given === code.OK) return 'ok';
  return grpcRefusals.has(given) ? 'fail' : 'unknown';
}

/**
 * Whether a refusal says something of what is asked, and would be the same at any time. Others say that this request was not
 * looked at: no right, too early, too much at the moment. What was sent under its key before may be done all the same.
 */
export function isForGood(door: DoorKind, status: number): boolean {
  return door === 'grpc' ? !grpcNotLookedAt.has(status) : !httpNotLookedAt.has(status);
}

const httpNotLookedAt: ReadonlySet<number> = new Set([401, 403, 408, 425, 429]);
const grpcNotLookedAt: ReadonlySet<code> = new Set([code.PERMISSION_DENIED, code.UNAUTHENTICATED]);

/** What a 4xx is over HTTP. A library may say any other by itself, when a connection breaks. */
const grpcRefusals: ReadonlySet<code> = new Set([
  code.INVALID_ARGUMENT,
  code.NOT_FOUND,
  code.ALREADY_EXISTS,
  code.PERMISSION_DENIED,
  code.FAILED_PRECONDITION,
  code.OUT_OF_RANGE,
  code.UNIMPLEMENTED,
  code.UNAUTHENTICATED,
]);
