import type { HttpAnswer } from './answer.ts';

/** Every problem (RFC 9457) that a door answers by itself. `docs/problems.md` explains each; a test compares the two. */
export const problemTable = {
  unauthenticated: { status: 401, title: 'It is not known who asks.' },
  'key-missing': { status: 400, title: 'The header Idempotency-Key is missing.' },
  'key-malformed': {
    status: 400,
    title:
      'Idempotency-Key is one header line: a token of 1 to 255 letters, digits and "._:-", or a quoted string of 1 to 255 visible ASCII characters.',
  },
  'key-reused': { status: 409, title: 'This key was used for another request.' },
  'key-expired': { status: 409, title: 'This key is older than what is kept; whether it was used cannot be said.' },
  'answer-not-kept': { status: 409, title: 'The request was carried out once; its answer was too large to be kept.' },
  'body-malformed': { status: 400, title: 'The body cannot be read.' },
  'body-too-large': { status: 413, title: 'The body is too large.' },
  'media-type-unsupported': { status: 415, title: 'The body has a type that is not taken here.' },
  'request-invalid': { status: 422, title: 'The request is not valid.' },
  busy: { status: 503, title: 'Another request with this key is under way, or too many are; repeat with this key.' },
  unavailable: { status: 503, title: 'The request cannot be carried out now; repeat with the same key.' },
  'outcome-unknown': {
    status: 503,
    title: 'Whether the request was carried out is not known yet; repeat with the same key.',
  },
  internal: { status: 500, title: 'Something failed here. Nothing was done; the same key may be used again.' },
} as const satisfies Record<string, { status: number; title: string }>;

export type ProblemName = keyof typeof problemTable;

export function problemType(name: string): string {
  return `urn:twiceproof:problem:${name}`;
}

const retryAfterMs = 1_000;

/** `detail` is for a person, about this one request; it never holds anything of another's. */
export function problem(
  name: ProblemName,
  { detail, afterMs }: { detail?: string; afterMs?: number } = {},
): HttpAnswer {
  const { status, title } = problemTable[name];
  const headers: Record<string, string> = { 'content-type': 'application/problem+json' };
  if (status === 503) headers['retry-after'] = String(Math.ceil((afterMs ?? retryAfterMs) / 1_000));
  if (status === 401) headers['www-authenticate'] = 'Bearer';
  const body = JSON.stringify({ type: problemType(name), title, status, ...(detail !== undefined && { detail }) });
  return { status, headers, body };
}
