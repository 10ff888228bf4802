/** How far a consumer has come in each lane, kept beside its effects: the truth about that, whatever the broker believes. */
import { queryNamed } from '../named-statements.ts';
import { quotedSchema } from '../schema-name.ts';
import type { AssignedLane, Lane, Position } from '../transport.ts';
import type { Tx } from '../tx.ts';

export interface KnownLane extends Lane {
  /** Tells a topic from one of the same name that was created later. */
  topicId: string;
}

/** What the database knew when positions were written. */
export interface LanesBefore {
  /** At the same index. */
  positions: (bigint | undefined)[];
  /** Whether any key of this consumer waited for a person. */
  hasBlockedKeys: boolean;
}

/**
 * Not the greater of two: whoever comes late and sets it back costs duplicates only, and a greater one could be wrong.
 * From here on until the end of the transaction, nobody else can move these lanes.
 */
export async function writePositions(
  tx: Tx,
  consumer: string,
  lanes: readonly (KnownLane & { next: bigint })[],
  schemaName?: string,
): Promise<LanesBefore> {
  const schema = quotedSchema(schemaName);
  const table = `${schema}.inbox_position`;
  // Locked in one order by all, so that two that have the same lanes for a moment cannot wait for each other.
  const { rows } = await queryNamed(
    tx,
    `WITH lanes AS MATERIALIZED (
       SELECT * FROM unnest($2::text[], $3::int[], $4::text[], $5::bigint[]) WITH ORDINALITY
         AS lane (topic_id, partition, topic, next, n)),
     before AS MATERIALIZED (
       SELECT n, p.next_offset FROM lanes JOIN ${table} p
         ON p.consumer = $1 AND p.topic_id = lanes.topic_id AND p.partition = lanes.partition
       ORDER BY p.topic_id, p.partition FOR UPDATE OF p),
     written AS (
       INSERT INTO ${table} (consumer, topic_id, partition, topic, next_offset)
       SELECT $1, topic_id, partition, topic, next FROM lanes WHERE (SELECT count(*) FROM before) >= 0
       ORDER BY topic_id, partition
       ON CONFLICT (consumer, topic_id, partition)
       DO UPDATE SET next_offset = excluded.next_offset, updated_at = clock_timestamp())
     SELECT before.next_offset::text AS next,
       EXISTS (SELECT FROM ${schema}.held WHERE consumer = $1 AND blocks_key) AS has_blocked
     FROM lanes LEFT JOIN before USING (n) ORDER BY n`,
    [
      consumer,
      lanes.map(({ topicId }) => topicId),
      lanes.map(({ partition }) => partition),
      lanes.map(({ topic }) => topic),
      lanes.map(({ next }) => String(next)),
    ],
  );
  return {
    positions: rows.map(({ next }) => (next === null ? undefined : BigInt(next as string))),
    hasBlockedKeys: rows.some((row) => row['has_blocked'] === true),
  };
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
