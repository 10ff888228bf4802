/** What a number of a key stands for: the key, and what is asked for with it. It follows from the seed and the number alone. */
import { scatter } from './random.ts';

export const statuses = ['paid', 'shipped', 'delivered', 'cancelled'] as const;
export type Status = (typeof statuses)[number];

export interface Identity {
  /** The 128 bits of the key. */
  words: Uint32Array;
  /** No two keys of a run have the same, so a business row alone tells which intent it came from. */
  accountId: number;
  amountCents: number;
  /** What a change of status sets. */
  status: Status;
  become(keyNumber: number): void;
}

/** `bornAtMs`: keys are UUIDv7 that are born from then on; without, they are of version 4. */
export function createIdentity(seed: number, bornAtMs?: number): Identity {
  const firstAccountId = nonceOf(seed) * 2 ** 32 + 1;
  const words = new Uint32Array(4);
  const identity: Identity = {
    words,
    accountId: 0,
    amountCents: 0,
    status: statuses[0],
    become(keyNumber) {
      keyWords(seed, keyNumber, words);
      if (bornAtMs !== undefined) giveTime(words, bornAtMs + keyNumber / keysInMs);
      const drawn = scatter(words[3]! ^ 0x5bd1e995);
      identity.accountId = firstAccountId + keyNumber;
      identity.amountCents = 10_000 + (drawn % 90_000);
      identity.status = statuses[drawn >>> 30]!;
    },
  };
  return identity;
}

/** Below 2^20, so that account ids stay below 2^53; and from 2^18 on, so that all of them have 16 digits. */
function nonceOf(seed: number): number {
  const least = 2 ** 18;
  return least + (scatter(seed) % (2 ** 20 - least));
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

export const uuidLength = 36;
/** The two digits of each byte. */
const hexPairs = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0')).join(''));
const dash = '-'.charCodeAt(0);

export function writeUuid(bytes: Buffer, at: number, words: Uint32Array): void {
  let to = at;
  for (let index = 0; index < 16; index++) {
    if (index === 4 || index === 6 || index === 8 || index === 10) bytes[to++] = dash;
    const pair = 2 * ((words[index >>> 2]! >>> (24 - 8 * (index & 3))) & 255);
    bytes[to++] = hexPairs[pair]!;
    bytes[to++] = hexPairs[pair + 1]!;
  }
}
