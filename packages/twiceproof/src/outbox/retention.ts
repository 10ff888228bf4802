/**
 * What of the log may go, and when. The one place of that rule:
 *
 * A row may go when its transaction id lies below the `xmin` of the snapshot up to which **every** shard is published, and
 * it is older than the retention. Below that `xmin` every transaction had ended when the snapshot was taken: nothing
 * can be committed there any more, and all that was has been published. Never by id or date alone: a transaction that
 * is committed late leaves a row with an old id and an old date that nobody has published yet.
 */
import { TwiceproofError } from '../errors.ts';
import { quotedSchema } from '../schema-name.ts';
import type { Tx } from '../tx.ts';

/** Every transaction below this id has ended, and what it wrote is published. */
export async function publishedBelow(tx: Tx, schemaName?: string): Promise<bigint> {
  const schema = quotedSchema(schemaName);
  const { rows } = await tx.query(
    `SELECT (SELECT pg_snapshot_xmin(prev)::text FROM ${schema}.relay_cursor ORDER BY pg_snapshot_xmin(prev) LIMIT 1) AS xid,
       count(*) = (SELECT shards FROM ${schema}.settings) AS is_complete,
       bool_or(c.system_identifier <> (SELECT system_identifier FROM pg_control_system())
         OR pg_snapshot_xmax(c.prev) > pg_snapshot_xmax(pg_current_snapshot())) AS is_foreign
     FROM ${schema}.relay_cursor c`,
  );
  const { xid, is_complete, is_foreign } = rows[0]!;
  if (!is_complete) throw new TwiceproofError('TP_SCHEMA_VERSION', 'there is not one cursor for each shard');
  // They would speak of transactions of another cluster.
  if (is_foreign) throw new TwiceproofError('TP_CURSOR_FOREIGN', 'the cursors do not belong to this cluster');
  return BigInt(String(xid));
}

export interface Partition {
  /** Ready to stand in SQL. */
  name: string;
  /** Transaction ids: from the first on, below the second. */
  from: bigint;
  to: bigint;
}

export interface Partitions {
  /** In order. */
  ranges: Partition[];
  /** No transaction has got this id yet. */
  nextXid: bigint;
  isDefaultEmpty: boolean;
}

export async function readPartitions(tx: Tx, schemaName?: string): Promise<Partitions> {
  const schema = quotedSchema(schemaName);
  const { rows } = await tx.query(
    `SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next,
       NOT EXISTS (SELECT FROM ${schema}.outbox_default) AS is_default_empty,
       (SELECT json_agg(json_build_object('name', format('%I.%I', n.nspname, c.relname),
                                          'bounds', pg_get_expr(c.relpartbound, c.oid)))
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE i.inhparent = '${schema}.outbox'::regclass)::text AS found`,
  );
  const { next, is_default_empty, found } = rows[0]!;
  const ranges = (JSON.parse(String(found)) as { name: string; bounds: string }[]).flatMap(({ name, bounds }) => {
    // Not the default, and no range without an end: somebody else has made that.
    const [, from, to] = /^FOR VALUES FROM \('(\d+)'\) TO \('(\d+)'\)$/.exec(bounds) ?? [];
    return from === undefined || to === undefined ? [] : [{ name, from: BigInt(from), to: BigInt(to) }];
  });
  ranges.sort((a, b) => (a.from < b.from ? -1 : 1));
  return { ranges, nextXid: BigInt(String(next)), isDefaultEmpty: is_default_empty === true };
}

/** Whether nothing can be committed in a partition any more, and every shard has published what was. */
export async function isPublished(tx: Tx, { to }: Partition, schema?: string): Promise<boolean> {
  return to <= (await publishedBelow(tx, schema));
}

/**
 * Empties a partition, if all of it may go. TRUNCATE of the part and not DROP: it waits only for those who read the part
 * just now, and no writer of newer rows waits for it.
 */
export async function emptyPartition(
  tx: Tx,
  partition: Partition,
  { retentionMs, schema }: { retentionMs: number; schema?: string | undefined },
): Promise<'emptied' | 'kept'> {
  if (!(await isPublished(tx, partition, schema))) return 'kept';
  const { name } = partition;
  const { rowCount } = await tx.query(
    `SELECT FROM ${name} WHERE created_at >= clock_timestamp() - $1 * interval '1 millisecond' LIMIT 1`,
    [retentionMs],
  );
  if (rowCount) return 'kept';
  await tx.query(`TRUNCATE ${name}`);
  return 'emptied';
}

/** Of a table of the log, whose name is ready to stand in SQL: for which topics there are rows below this id. It reads all of it. */
export async function topicsIn(tx: Tx, table: string, below: bigint): Promise<string[]> {
  const { rows } = await tx.query(`SELECT DISTINCT topic FROM ${table} WHERE xid < $1::xid8 ORDER BY topic`, [
    String(below),
  ]);
  return rows.map(({ topic }) => String(topic));
}

export function defaultPartition(schemaName?: string): string {
  return `${quotedSchema(schemaName)}.outbox_default`;
}

/** Of an empty partition. It needs the whole outbox for a moment, so it waits for every open writer: bound it. */
export async function dropPartition(tx: Tx, { name }: Partition): Promise<void> {
  await tx.query(`DROP TABLE ${name}`);
}

/** Rows of the default partition, of these blocks, by the same rule: walking the blocks finds them without an index. */
export async function deleteFromDefault(
  tx: Tx,
  options: {
    blocks: { from: number; to: number };
    /** Nothing from here on, though it may have been published meanwhile. */
    below: bigint;
    retentionMs: number;
    schema?: string | undefined;
  },
): Promise<{ count: number; blocksInTable: number }> {
  const { blocks, retentionMs } = options;
  const table = defaultPartition(options.schema);
  const published = await publishedBelow(tx, options.schema);
  const below = options.below < published ? options.below : published;
  const { rows } = await tx.query(
    `WITH gone AS (
       DELETE FROM ${table} WHERE ctid >= $1::tid AND ctid < $2::tid AND xid < $3::xid8
         AND created_at < clock_timestamp() - $4 * interval '1 millisecond'
       RETURNING 1)
     SELECT (SELECT count(*) FROM gone)::int AS count,
       (pg_relation_size('${table}') / current_setting('block_size')::int)::int AS blocks`,
    [`(${blocks.from},0)`, `(${blocks.to},0)`, String(below), retentionMs],
  );
  return { count: Number(rows[0]?.['count']), blocksInTable: Number(rows[0]?.['blocks']) };
}

/**
 * Which ranges to make: the two steps behind that of the next transaction id, and its own as long as no row stands in the
 * default partition. The rows of a range can be in one place only, so a range that has begun without a partition stays
 * without one.
 */
export function rangesAhead(
  { ranges, nextXid, isDefaultEmpty }: Partitions,
  stepXids: bigint,
): { from: bigint; to: bigint }[] {
  const current = (nextXid / stepXids) * stepXids;
  return [0n, 1n, 2n]
    .map((n) => ({ from: current + n * stepXids, to: current + (n + 1n) * stepXids }))
    .filter(({ from }) => from > nextXid || isDefaultEmpty)
    .filter(({ from, to }) => !ranges.some((other) => other.from < to && from < other.to));
}

/**
 * By ATTACH, which lets writers go on, where CREATE ... PARTITION OF would wait for all of them. Only the default partition
 * is locked, while the server makes sure that it holds no row of the range: bound it.
 */
export async function addPartition(
  tx: Tx,
  { from, to }: { from: bigint; to: bigint },
  schemaName?: string,
): Promise<string> {
  const schema = quotedSchema(schemaName);
  const name = `${schema}."outbox_${from}_${to}"`;
  await tx.query(`CREATE TABLE ${name} (LIKE ${schema}.outbox INCLUDING DEFAULTS INCLUDING STORAGE)`);
  await tx.query(`ALTER TABLE ${schema}.outbox ATTACH PARTITION ${name} FOR VALUES FROM ('${from}') TO ('${to}')`);
  return name;
}
