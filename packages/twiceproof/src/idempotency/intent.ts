import { hash, timingSafeEqual } from 'node:crypto';
import { TwiceproofError } from '../errors.ts';
import { timeOfUuidv7 } from '../uuid.ts';

/** What a client asked for, named by scope and key. */
export interface Intent {
  /** Who asks: the tenant or the authenticated caller. There is no anonymous one. */
  principal: string;
  /** The operation's name, for example its route template. */
  operation: string;
  /** The client's idempotency key, already validated. */
  key: string;
  /**
   * Over what was asked for: the same key with another request is a mistake of the client's. In hex: a Buffer for each
   * request costs more than it is worth.
   */
  requestHash: string;
  hashVersion: number;
  /** Kept by `keyHash`, because an intent is looked up by it several times on its way. */
  hash?: string;
}

/** What was answered, independent of the door through which it goes out. */
export interface Answer {
  code: number;
  headers: Readonly<Record<string, string>> | null;
  /** Null: it was too large to be kept. */
  body: Uint8Array | null;
  /** Of the function that renders it. */
  version: number;
}

/**
 * 128 bits of SHA-256 over the scope and the key, each with its length before it, so that no two scopes run together. A key
 * that is a UUIDv7 lends its time to the first 48 of them: keys of one time then stand together in the index, where
 * random ones would touch a page each, and after a checkpoint write all of it to the log.
 */
export function keyHash(intent: Intent): string {
  if (intent.hash !== undefined) return intent.hash;
  const { principal, operation, key } = intent;
  if (!principal.isWellFormed() || principal.includes('\0')) {
    throw new TwiceproofError('TP_OPTION', 'the principal is no text that can be stored: a NUL or a lone surrogate');
  }
  const digest = hash('sha256', withLength(principal) + withLength(operation) + withLength(key), 'hex');
  const hex = timeOfUuidv7(key) === undefined ? digest : (key.slice(0, 8) + key.slice(9, 13)).toLowerCase() + digest;
  // As Postgres writes a uuid, since it is compared with what comes from there.
  intent.hash = `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}`;
  return intent.hash;
}

function withLength(part: string): string {
  return `${Buffer.byteLength(part)}:${part}`;
}

type RequestHash = Pick<Intent, 'requestHash' | 'hashVersion'>;

/**
 * Whether two requests under one key ask for the same. Hashes of different versions cannot be compared: a retry that
 * comes to a newer program gets the answer of the first.
 */
export function isSameRequest(a: RequestHash, b: RequestHash): boolean {
  if (a.hashVersion !== b.hashVersion) return true;
  const [one, other] = [Buffer.from(a.requestHash), Buffer.from(b.requestHash)];
  return one.length === other.length && timingSafeEqual(one, other);
}
