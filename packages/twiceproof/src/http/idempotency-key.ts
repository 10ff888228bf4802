/**
 * The syntax of a client's idempotency key, the same through every door: a structured string (RFC 8941) in quotes, or
 * a bare token. `"abc"` and `abc` are the same key. Everything else is refused before any query.
 */
export type ParsedKey = { key: string } | { problem: 'key-missing' | 'key-malformed' };

const maxChars = 255;
const bareToken = /^[A-Za-z0-9._:-]{1,255}$/;
/**
 * Without the space that RFC 8941 allows: so two header lines that something on the way has joined with ", " are
 * never one key. Its alternatives exclude each other, so it takes linear time.
 */
const quotedString = /^"((?:[\x21\x23-\x5b\x5d-\x7e]|\\["\\])+)"$/;

/** One value for each header line or metadata entry that the client has sent: two of them are no key. */
export function parseIdempotencyKey(lines: readonly string[]): ParsedKey {
  const [text] = lines;
  if (text === undefined) return { problem: 'key-missing' };
  if (lines.length > 1) return { problem: 'key-malformed' };
  if (bareToken.test(text)) return { key: text };
  // Each character may be escaped, and two quotes stand around them.
  if (text.length > 2 * maxChars + 2) return { problem: 'key-malformed' };
  const inside = quotedString.exec(text)?.[1];
  if (inside === undefined) return { problem: 'key-malformed' };
  const key = inside.replaceAll(/\\(.)/g, '$1');
  return key.length > maxChars ? { problem: 'key-malformed' } : { key };
}
