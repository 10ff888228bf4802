/**
 * The bytes of one request. Everything has a fixed width, so a connection keeps one buffer for its whole
 * life and writes only the key and the digits into it.
 */
import { scatter } from './random.ts';

export interface Request {
  bytes: Buffer;
  /** Of the request that was filled in last. */
  accountId: number;
  amountCents: number;
  /** Makes this the request for a key: the same key always gives the same bytes. */
  fill(keyNumber: number): void;
  /** The key as text, for the ledger. */
  key(): string;
}

const keyLength = 36;

/** `bornAtMs`: keys are UUIDv7 that are born from then on; without, they are of version 4. */
export function createRequest(host: string, principalHeader: string, seed: number, bornAtMs?: number): Request {
  const body = '{"account_id":000000,"amount_cents":00000}';
  const head = [
    'POST /orders HTTP/1.1',
    `host: ${host}`,
    principalHeader,
    'content-type: application/json',
    `content-length: ${body.length}`,
    `idempotency-key: ${'0'.repeat(keyLength)}`,
  ].join('\r\n');
  const bytes = Buffer.from(`${head}\r\n\r\n${body}`, 'latin1');
  const keyAt = head.length - keyLength;
  const bodyAt = head.length + 4;
  const accountAt = bodyAt + body.indexOf('000000');
  const amountAt = bodyAt + body.lastIndexOf('00000');
  const words = new Uint32Array(4);

  const request: Request = {
    bytes,
    accountId: 0,
    amountCents: 0,
    fill(keyNumber) {
      keyWords(seed, keyNumber, words);
      if (bornAtMs !== undefined) giveTime(words, bornAtMs + keyNumber / keysInMs);
      writeUuid(bytes, keyAt, words);
      request.accountId = 100_000 + (scatter(words[0]! ^ 0x5bd1e995) % 900_000);
      request.amountCents = 10_000 + (scatter(words[3]! ^ 0x5bd1e995) % 90_000);
      writeDigits(bytes, accountAt, 6, request.accountId);
      writeDigits(bytes, amountAt, 5, request.amountCents);
    },
    key: () => bytes.toString('latin1', keyAt, keyAt + keyLength),
  };
  return request;
}

/**
 * Four Feistel rounds over (seed, number) fill the two words that carry no version bits, so no two keys of
 * any two seeds are equal. The shape is version 4; a version 7 also has a time, by which the server knows how old it is.
 */
function keyWords(seed: number, number: number, words: Uint32Array): void {
  let left = seed;
  let right = number;
  for (let round = 1; round <= 4; round++) {
    const old = right;
    right = (left ^ scatter((right + Math.imul(round, 0x9e3779b9)) | 0)) >>> 0;
    left = old;
  }
  const middle = scatter(left ^ scatter(right));
  words[0] = left;
  words[1] = (middle & 0xffff0fff) | 0x4000;
  words[2] = (scatter(middle + 1) & 0x3fffffff) | 0x80000000;
  words[3] = right;
}

/** As many as 5,000 requests/s have. */
const keysInMs = 5;

/** A version 7 of what is there: the 64 bits that tell keys apart move behind the time. */
function giveTime(words: Uint32Array, ms: number): void {
  const [left, , , right] = words as unknown as [number, number, number, number];
  words[0] = Math.floor(ms / 0x10000);
  words[1] = ((Math.floor(ms) & 0xffff) << 16) | 0x7000 | (left >>> 30);
  words[2] = (left & 0x3fffffff) | 0x80000000;
  words[3] = right;
}

const hexCodes = Buffer.from('0123456789abcdef', 'latin1');
const dash = '-'.charCodeAt(0);

function writeUuid(bytes: Buffer, at: number, words: Uint32Array): void {
  let to = at;
  for (let digit = 0; digit < 32; digit++) {
    if (digit === 8 || digit === 12 || digit === 16 || digit === 20) bytes[to++] = dash;
    bytes[to++] = hexCodes[(words[digit >>> 3]! >>> (28 - 4 * (digit & 7))) & 15]!;
  }
}

function writeDigits(bytes: Buffer, at: number, width: number, value: number): void {
  let left = value;
  for (let to = at + width - 1; to >= at; to--) {
    bytes[to] = 48 + (left % 10);
    left = Math.floor(left / 10);
  }
}
