/** The pieces of HTTP syntax that the parser needs, read from bytes without making strings. */

/** `dropped`: lives for one hop only, or is Date, which may differ between a first answer and its replay. */
export type HeaderKind = 'end-to-end' | 'dropped' | 'connection' | 'content-length' | 'transfer-encoding' | 'malformed';

const special: [string, HeaderKind][] = [
  ['date', 'dropped'],
  ['keep-alive', 'dropped'],
  ['proxy-authenticate', 'dropped'],
  ['proxy-connection', 'dropped'],
  ['te', 'dropped'],
  ['trailer', 'dropped'],
  ['upgrade', 'dropped'],
  ['connection', 'connection'],
  ['content-length', 'content-length'],
  ['transfer-encoding', 'transfer-encoding'],
];
const longestSpecial = Math.max(...special.map(([name]) => name.length));
const specialByLength = Array.from({ length: longestSpecial + 1 }, (_, length) =>
  special.filter(([name]) => name.length === length),
);

const tokenBytes = new Uint8Array(256);
for (const char of "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
  tokenBytes[char.charCodeAt(0)] = 1;
}

export function headerKind(bytes: Buffer, from: number, to: number): HeaderKind {
  if (from === to) return 'malformed';
  for (let at = from; at < to; at++) if (tokenBytes[bytes[at]!] === 0) return 'malformed';
  for (const [name, kind] of specialByLength[to - from] ?? []) if (equalsText(bytes, from, to, name)) return kind;
  return 'end-to-end';
}

/** Visible characters, spaces, tabs and bytes beyond ASCII. */
export function isFieldValue(bytes: Buffer, from: number, to: number): boolean {
  for (let at = from; at < to; at++) {
    const byte = bytes[at]!;
    if ((byte < 32 && byte !== 9) || byte === 127) return false;
  }
  return true;
}

/** Where the CRLF begins; -1 if it has not come yet, -2 if a CR or LF stands alone. */
export function lineEnd(bytes: Buffer, from: number, size: number): number {
  for (let at = from; at < size; at++) {
    const byte = bytes[at]!;
    if (byte === 10) return -2;
    if (byte !== 13) continue;
    if (at + 1 === size) return -1;
    return bytes[at + 1] === 10 ? at : -2;
  }
  return -1;
}

/** `text` in small letters, against bytes in any. */
export function equalsText(bytes: Buffer, from: number, to: number, text: string): boolean {
  if (to - from !== text.length) return false;
  for (let at = from; at < to; at++) {
    if (smallLetter(bytes[at]!) !== text.charCodeAt(at - from)) return false;
  }
  return true;
}

export function smallLetter(byte: number): number {
  return byte >= 65 && byte <= 90 ? byte + 32 : byte;
}

/** -1 if it is none. */
export function readContentLength(bytes: Buffer, from: number, to: number): number {
  if (from === to || to - from > 15) return -1;
  let value = 0;
  for (let at = from; at < to; at++) {
    const digit = bytes[at]! - 48;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + digit;
  }
  return value;
}

/** -1 if it is none. Extensions of a chunk (`;name=value`) have no meaning for us. */
export function readChunkSize(bytes: Buffer, from: number, to: number): number {
  let value = 0;
  let at = from;
  for (; at < to && bytes[at] !== 59; at++) {
    const digit = hexDigit(bytes[at]!);
    if (digit < 0 || at - from >= 8) return -1;
    value = value * 16 + digit;
  }
  return at === from || !isFieldValue(bytes, at, to) ? -1 : value;
}

function hexDigit(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const small = byte | 32;
  return small >= 97 && small <= 102 ? small - 87 : -1;
}
