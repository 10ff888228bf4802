import { randomFillSync } from 'node:crypto';

/**
 * A UUIDv7 (RFC 9562): 48 bits of Unix time in milliseconds, then random bits. Its order is by time,
 * which keeps indexes dense, and its time says in which partition of an inbox it belongs.
 */
export function uuidv7(nowMs: number = Date.now(), random: Buffer = tenRandomBytes()): string {
  const time = nowMs.toString(16).padStart(12, '0');
  const bits = random.toString('hex', 0, 10);
  // The version is 7, and the two highest bits of the fourth group are 10.
  const variant = '89ab'[Number.parseInt(bits[4]!, 16) & 3];
  return `${time.slice(0, 8)}-${time.slice(8)}-7${bits.slice(1, 4)}-${variant}${bits.slice(5, 8)}-${bits.slice(8)}`;
}

/** The time inside a UUIDv7, or undefined for any other string. */
export function timeOfUuidv7(uuid: string): number | undefined {
  if (!/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i.test(uuid)) return undefined;
  return Number.parseInt(uuid.slice(0, 8) + uuid.slice(9, 13), 16);
}

/** Drawn in advance: a call for each id would cost more than all the rest of it. */
const pool = Buffer.alloc(4_090);
let used = pool.length;

function tenRandomBytes(): Buffer {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += 10;
  return pool.subarray(used - 10, used);
}
