/** How far a consumer has come in each lane, kept beside its effects: the truth about that, whatever the broker believes. */
import { quotedSchema } from '../schema-name.ts';
import type { AssignedLane, Lane, Position } from '../transport.ts';
import type { Tx } from '../tx.ts';

export interface KnownLane extends Lane {
  /** Tells a topic from one of the same name that was created later. */
  topicId: string;
}

/** What the database knew of a lane when its position was written. */
export interface LaneBefore {
  position: bigint | undefined;
  /** Whether any key of this consumer waited for a person. */
  hasBlockedKeys: boolean;
}

/**
 * Not the greater of two: whoever comes late and sets it back costs duplicates only, and a greater one could be wrong.
 * From here on until its end, nobody else can move this lane.
 */
export async function writePosition(
  tx: Tx,
  consumer: string,
  { topic, topicId, partition, next }: KnownLane & { next: bigint },
  schemaName?: string,
): Promise<LaneBefore> {
  const schema = quotedSchema(schemaName);
  const table = `${schema}.inbox_position`;
  const { rows } = await tx.query(
    `WITH before AS MATERIALIZED (
       SELECT next_offset FROM ${table} WHERE consumer = $1 AND topic_id = $2 AND partition = $3 FOR UPDATE),
     written AS (
       INSERT INTO ${table} (consumer, topic_id, partition, topic, next_offset)
       SELECT $1, $2, $3, $4, $5::bigint WHERE (SELECT count(*) FROM before) >= 0
       ON CONFLICT (consumer, topic_id, partition)
       DO UPDATE SET next_offset = excluded.next_offset, updated_at = clock_timestamp())
     SELECT (SELECT next_offset::text FROM before) AS next,
       EXISTS (SELECT FROM ${schema}.held WHERE consumer = $1 AND blocks_key) AS has_blocked`,
    [consumer, topicId, partition, topic, String(next)],
  );
  const { next: position, has_blocked } = rows[0]!;
  return { position: position === null ? undefined : BigInt(String(position)), hasBlockedKeys: has_blocked === true };
}

/** At the same index; undefined where nothing was ever processed, or only of another topic of that name. */
export async function readPositions(
  tx: Tx,
  consumer: string,
  lanes: readonly KnownLane[],
  schemaName?: string,
): Promise<(bigint | undefined)[]> {
  const { rows } = await tx.query(
    `SELECT p.next_offset::text AS next
     FROM unnest($2::text[], $3::int[]) WITH ORDINALITY AS lane (topic_id, partition, n)
     LEFT JOIN ${quotedSchema(schemaName)}.inbox_position p
       ON p.consumer = $1 AND p.topic_id = lane.topic_id AND p.partition = lane.partition
     ORDER BY n`,
    [consumer, lanes.map(({ topicId }) => topicId), lanes.map(({ partition }) => partition)],
  );
  return rows.map(({ next }) => (next === null ? undefined : BigInt(next as string)));
}

/** Where reading begins, and why a person should know of it, if so. */
export interface Start extends Position {
  alarm?: string;
}

/**
 * Where a lane begins that is ours now. By what the database and the group know:
 *
 * - both: the lower one. A database that was restored is behind, and so all since then comes again; an operator who sets
 *   the group back wants a replay, and gets it. Setting it forward skips nothing: what is not processed comes.
 * - the database alone: its position. The group was renamed, or was away for so long that the broker forgot it.
 * - the group alone, or neither: from the beginning. The inbox knows what it has processed; the latest would lose.
 * - a position below the log: from its beginning, with an alarm. Records were deleted before they were processed.
 * - a position beyond its end: that one, whatever the group says. Perhaps its owner before us is quicker than the end that
 *   we were told, and the transport looks again; if it is really beyond, the broker has lost the end of the log, and the
 *   transport begins at the beginning, with an alarm.
 */
export function chooseStart({ topic, partition, committed, earliest, end }: AssignedLane, known?: bigint): Start {
  const lane = { topic, partition };
  if (known === undefined) return { ...lane, offset: earliest };
  if (known < earliest) {
    const alarm = `offsets ${known} to ${earliest} were deleted before they were processed`;
    return { ...lane, offset: earliest, alarm };
  }
  if (committed === undefined || committed >= known || known > end) return { ...lane, offset: known };
  return { ...lane, offset: committed < earliest ? earliest : committed };
}
