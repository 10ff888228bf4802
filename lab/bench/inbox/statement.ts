/**
 * What the inbox and its keeper send to the server, written out: the bench times single statements, and the programs do not
 * say how long one of them took. A test compares the texts with the sources.
 */
import { randomFillSync } from 'node:crypto';

/** $1 the consumer, $2 the ids, $3 the hashes of the contents. */
export const acceptText = `WITH bounds AS MATERIALIZED (SELECT floor, ceiling FROM twiceproof.inbox_bounds),
  asked AS MATERIALIZED (SELECT id, content FROM unnest($2::uuid[], $3::bigint[]) AS a (id, content)),
  accepted AS (
    INSERT INTO twiceproof.inbox (msg_id, consumer, content_hash)
    SELECT id, $1::text, content FROM asked, bounds WHERE id >= floor AND id < ceiling
    ORDER BY id ON CONFLICT DO NOTHING RETURNING msg_id)
  SELECT id, CASE WHEN accepted.msg_id IS NOT NULL THEN 'first' WHEN id < floor THEN 'late'
    WHEN id >= ceiling THEN 'future' ELSE 'duplicate' END AS verdict
  FROM bounds, asked LEFT JOIN accepted ON accepted.msg_id = asked.id`;

export const raiseFloorText = `UPDATE twiceproof.inbox_bounds
  SET floor = $1, ceiling = GREATEST(ceiling, $1) WHERE floor < $1`;

export const dayMs = 86_400_000;
export const consumer = 'payments';
/** What does not get its lock in this time is left to the next pass. */
export const keeperLockTimeoutMs = 2_000;

export interface Range {
  fromMs: number;
  toMs: number;
}

export type PartitionState = 'attached' | 'detaching' | 'detached' | 'gone';

/** To be sent one by one, outside of a transaction. */
export function forgetTexts(range: Range, state: PartitionState): string[] {
  const name = partitionName(range);
  const detach = `ALTER TABLE twiceproof.inbox DETACH PARTITION ${name}`;
  const drop = `DROP TABLE ${name}`;
  const how = {
    attached: [`${detach} CONCURRENTLY`, drop],
    detaching: [`${detach} FINALIZE`, drop],
    detached: [drop],
    gone: [],
  };
  return how[state];
}

export function partitionName({ fromMs, toMs }: Range): string {
  return `twiceproof."inbox_${fromMs}_${toMs}"`;
}

export function attachText(range: Range): string {
  const [from, to] = [firstIdOf(range.fromMs), firstIdOf(range.toMs)];
  return `ALTER TABLE twiceproof.inbox ATTACH PARTITION ${partitionName(range)} FOR VALUES FROM ('${from}') TO ('${to}')`;
}

/** The first id of a time. */
export function firstIdOf(timeMs: number): string {
  const hex = Math.floor(timeMs).toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

/** The days from one that holds `fromMs` up to one that holds `toMs`, both included. */
export function daysAround(fromMs: number, toMs: number): Range[] {
  const first = Math.floor(fromMs / dayMs);
  const count = Math.floor(toMs / dayMs) - first + 1;
  return Array.from({ length: count }, (_, n) => ({ fromMs: (first + n) * dayMs, toMs: (first + n + 1) * dayMs }));
}

/** UUIDs of version 7 that grow, as those of one sender do, or of version 4. */
export function newIds(count: number, version: 4 | 7, nowMs: number = Date.now()): string[] {
  const random = randomFillSync(Buffer.alloc(16 * count));
  return Array.from({ length: count }, (_, n) => {
    const bytes = random.subarray(16 * n, 16 * n + 16);
    if (version === 7) {
      bytes.writeUIntBE(nowMs, 0, 6);
      bytes.writeUInt16BE(Math.floor((4_096 * n) / count), 6);
    }
    bytes[6] = (bytes[6]! & 0x0f) | (version << 4);
    bytes[8] = (bytes[8]! & 0x3f) | 0x80;
    const hex = bytes.toString('hex');
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
  });
}
