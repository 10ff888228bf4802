import { randomFillSync } from 'node:crypto';

/**
 * A UUIDv7 (RFC 9562): 48 bits of Unix time in milliseconds, then random bits. Its order is by time,
 * which keeps indexes dense, and its time says in which partition of an inbox it belongs.
 */
export function uuidv7(nowMs: number = Date.now(), randomHex: string = twentyRandomDigits()): string {
  if (nowMs !== timeMs) {
    timeMs = nowMs;
    const time = nowMs.toString(16).padStart(12, '0');
    timeText = `${time.slice(0, 8)}-${time.slice(8)}-7`;
  }
  // The version is 7, and the two highest bits of the fourth group are 10.
  const variant = '89ab89ab89ab89ab'[Number.parseInt(randomHex[4]!, 16)];
  return `${timeText}${randomHex.slice(1, 4)}-${variant}${randomHex.slice(5, 8)}-${randomHex.slice(8)}`;
}

/** Many are made in one millisecond. */
let timeMs = -1;
let timeText = '';

/** The time inside a UUIDv7, or undefined for any other string. */
export function timeOfUuidv7(uuid: string): number | undefined {
  if (!/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/i.test(uuid)) return undefined;
  return Number.parseInt(uuid.slice(0, 8) + uuid.slice(9, 13), 16);
}

/** Drawn in advance: a call for each id would cost more than all the rest of it. */
const drawn = Buffer.alloc(4_000);
let digits = '';
let used = 0;

function twentyRandomDigits(): string {
  if (used === digits.length) {
    digits = randomFillSync(drawn).toString('hex');
    used = 0;
  }
  used += 20;
  return digits.slice(used - 20, used);
}
