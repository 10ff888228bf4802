/**
 * After a dump was restored the log speaks of transactions of another cluster: ids of rows and snapshots of cursors mean
 * nothing here, or worse, something else. This translates them: what the old cursors call published gets an id below
 * all others, what they do not gets that of the transaction which repairs, and the cursors begin before that one.
 */
import { TwiceproofError } from '../errors.ts';
import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';

/** Smaller than the id of any transaction. */
const before = "'2'::xid8";

export type Repaired =
  | { outcome: 'nothing to repair' }
  /** So many messages are to be published, and come in their order. */
  | { outcome: 'repaired'; unpublished: number };

/** `tx` must be new: without an id until here, since a snapshot does not tell that the own transaction is under way. */
export async function repair(tx: Tx, schemaName?: string): Promise<Repaired> {
  const schema = quotedSchema(schemaName);
  // Waits for writers and keeps them away. A stronger lock would give the transaction its id.
  await tx.query(`LOCK TABLE ${schema}.outbox IN SHARE ROW EXCLUSIVE MODE`);
  const { rows } = await tx.query(
    `SELECT pg_current_snapshot()::text AS now, pg_current_xact_id_if_assigned() IS NULL AS is_new,
       (SELECT system_identifier FROM pg_control_system())::text AS cluster`,
  );
  const { now, is_new, cluster } = rows[0]!;
  if (!is_new) throw new Error('repair needs a transaction that has written nothing');
  const cursors = await lockCursors(tx, schema, String(now), String(cluster));
  if (cursors.every(({ isForeign }) => !isForeign)) return { outcome: 'nothing to repair' };
  let unpublished = 0;
  for (const { shard, values } of cursors) {
    await tx.query(translate(schema), [shard, now, ...values]);
    const { rows: found } = await tx.query(
      `SELECT count(*)::int AS n FROM ${schema}.outbox WHERE shard = $1 AND xid = pg_current_xact_id()`,
      [shard],
    );
    unpublished += Number(found[0]?.['n']);
  }
  // Of shards that were there once: all of that is published.
  await tx.query(
    `UPDATE ${schema}.outbox SET xid = ${before}
     WHERE shard <> ALL ($1::smallint[]) AND xid >= pg_snapshot_xmin($2::pg_snapshot)`,
    [cursors.map(({ shard }) => shard), now],
  );
  await tx.query(
    `UPDATE ${schema}.relay_cursor SET prev = $1::pg_snapshot, cur = NULL, last_id = 0, window_done = 0,
       system_identifier = $2::bigint, advanced_at = clock_timestamp()`,
    [now, cluster],
  );
  return { outcome: 'repaired', unpublished };
}

interface OldCursor {
  shard: number;
  isForeign: boolean;
  /** prev, cur, last_id, and the id of the transaction that wrote the cursor into this cluster. */
  values: unknown[];
}

async function lockCursors(tx: Tx, schema: string, now: string, cluster: string): Promise<OldCursor[]> {
  const { rows } = await tx.query(
    `SELECT shard, prev::text, cur::text, last_id::text, ${wholeXid('xmin', '$1')}::text AS written_by,
       system_identifier <> $2::bigint
         OR pg_snapshot_xmax(coalesce(cur, prev)) > pg_snapshot_xmax($1::pg_snapshot) AS is_foreign
     FROM ${schema}.relay_cursor ORDER BY shard FOR UPDATE`,
    [now, cluster],
  );
  if (rows.length === 0) throw new TwiceproofError('TP_SCHEMA_VERSION', 'there are no cursors');
  return rows.map(({ shard, prev, cur, last_id, written_by, is_foreign }) => ({
    shard: Number(shard),
    isForeign: is_foreign === true,
    values: [prev, cur, last_id, written_by],
  }));
}

/**
 * Writers may have been started before anybody thought of this. What they wrote has ids of this cluster, which the old
 * cursors may well call published. It is known by two marks: its transaction is younger than the one that wrote the
 * cursor here, and it is the one that wrote the row (or the parent of that one), where with a restored row both are an
 * accident. Should the accident happen, the message is published twice.
 */
function translate(schema: string): string {
  const isPublished = `(pg_visible_in_snapshot(o.xid, $3::pg_snapshot)
    OR ($4::pg_snapshot IS NOT NULL AND o.id <= $5::bigint AND pg_visible_in_snapshot(o.xid, $4::pg_snapshot)))`;
  const isOfThisCluster = `(o.xid >= $6::xid8 AND o.xid <= ${wholeXid('o.xmin', '$2')})`;
  const isDone = `(${isPublished} AND NOT ${isOfThisCluster})`;
  return `UPDATE ${schema}.outbox o SET xid = CASE WHEN ${isDone} THEN ${before} ELSE pg_current_xact_id() END
    WHERE o.shard = $1::smallint AND (o.xid >= pg_snapshot_xmin($2::pg_snapshot) OR NOT ${isDone})`;
}

/** The id by which a row was written, with the half of it that rows do not keep: they are never so old. */
function wholeXid(xmin: string, now: string): string {
  const next = `pg_snapshot_xmax(${now}::pg_snapshot)::text::bigint`;
  return `(${next} - (${next} - ${xmin}::text::bigint) % 4294967296)::text::xid8`;
}
