/**
 * 64 bits that tell two answers apart (cyrb53's two lanes, kept whole). Not against forgers: the server
 * under test has no reason to look for collisions, and SHA-256 would cost more than the parser.
 */
export interface Digest {
  a: number;
  b: number;
}

export function resetDigest(digest: Digest): void {
  digest.a = 0xdeadbeef | 0;
  digest.b = 0x41c6ce57 | 0;
}

export function addByte(digest: Digest, byte: number): void {
  digest.a = Math.imul(digest.a ^ byte, 0x9e3779b1);
  digest.b = Math.imul(digest.b ^ byte, 0x5f356495);
}

export function addBytes(digest: Digest, bytes: Uint8Array, from: number, to: number): void {
  let { a, b } = digest;
  for (let at = from; at < to; at++) {
    const byte = bytes[at]!;
    a = Math.imul(a ^ byte, 0x9e3779b1);
    b = Math.imul(b ^ byte, 0x5f356495);
  }
  digest.a = a;
  digest.b = b;
}

/** Multiplication only carries upwards; this lets the high bits reach the low ones. */
export function closeDigest(digest: Digest): void {
  const a = Math.imul(digest.a ^ (digest.a >>> 16), 0x85ebca6b) ^ Math.imul(digest.b ^ (digest.b >>> 13), 0xc2b2ae35);
  const b = Math.imul(digest.b ^ (digest.b >>> 16), 0x85ebca6b) ^ Math.imul(a ^ (a >>> 13), 0xc2b2ae35);
  digest.a = a >>> 0;
  digest.b = b >>> 0;
}

export function digestText({ a, b }: Digest): string {
  return a.toString(16).padStart(8, '0') + b.toString(16).padStart(8, '0');
}
