/** The statements by which the outbox is read as a log. Why they lose nothing and keep the order is said in poll.ts. */

/**
 * What a row of the outbox is read as: texts and bytes, since how a client reads json or times is for its owner to choose.
 * In the forms that take the server least to make: a cast of the headers would copy them twice, and date_part looks up
 * what 'epoch' means for each row.
 */
const columns = `o.topic, o.aggregate_id, o.msg_id, o.event_type,
  o.payload, json_out(o.headers) AS headers, timestamptz_send(o.created_at) AS created`;

/** Besides, where any key is parked: a message of it may not overtake it. */
export const isBehind = (schema: string): string => `, EXISTS (
  SELECT FROM ${schema}.relay_parked p WHERE p.shard = o.shard AND p.aggregate_id = o.aggregate_id) AS is_behind`;

/**
 * The window between two snapshots: what is visible in $3 and not in $2, of shard $1, behind id $4. Both snapshots are
 * parameters, since a column would be unpacked again for each row. The second part are the late ones: only ids that
 * were running in the first snapshot and have finished by the second can be those.
 */
function window(schema: string, wanted: string): string {
  return `SELECT ${wanted} FROM ${schema}.outbox o
      WHERE o.shard = $1::smallint AND o.id > $4::bigint
        AND o.xid >= pg_snapshot_xmax($2::pg_snapshot) AND o.xid < pg_snapshot_xmax($3::pg_snapshot)
        AND pg_visible_in_snapshot(o.xid, $3::pg_snapshot)
    UNION ALL
    SELECT ${wanted} FROM ${schema}.outbox o
      WHERE o.shard = $1::smallint AND o.id > $4::bigint
        AND o.xid >= pg_snapshot_xmin($2::pg_snapshot) AND o.xid < pg_snapshot_xmax($2::pg_snapshot)
        AND o.xid = ANY (ARRAY(SELECT x FROM pg_snapshot_xip($2::pg_snapshot) AS x
                               WHERE pg_visible_in_snapshot(x, $3::pg_snapshot)))`;
}

/** The first $5 messages of a window, with `more` columns. It sorts all of the window for that, but makes texts only of what it answers. */
export const readPage = (schema: string, more: string): string => `SELECT o.id::text AS position, ${columns}${more}
   FROM (${firstOfWindow(schema)}) AS o ORDER BY o.id`;

/** The same, but not beyond $6 bytes of payloads; `in_page` tells how many it would have been. */
export const readLargePage = (
  schema: string,
  more: string,
): string => `SELECT o.id::text AS position, ${columns}${more}, o.in_page
   FROM (${measured(firstOfWindow(schema))}) AS o WHERE o.bytes_before < $6::bigint ORDER BY o.id`;

const firstOfWindow = (schema: string): string =>
  `SELECT * FROM (${window(schema, 'o.*')}) AS w ORDER BY id LIMIT $5::bigint`;

/** The length is known without fetching the value, but adding them up is not free, so it is left out where it can be. */
const measured = (rows: string): string => `SELECT p.*, count(*) OVER () AS in_page,
     sum(octet_length(p.payload)) OVER (ORDER BY p.id) - octet_length(p.payload) AS bytes_before FROM (${rows}) AS p`;

/** Where the messages of a window are, up to $5 of them: a window of millions is sorted once for many pages. */
export const listWindow = (schema: string): string =>
  `SELECT count(*)::text AS count,
     string_agg(xid::text, ',' ORDER BY id) AS xids, string_agg(id::text, ',' ORDER BY id) AS ids
   FROM (SELECT xid, id FROM (${window(schema, 'o.xid, o.id')}) AS w ORDER BY id LIMIT $5::bigint) AS listed`;

/**
 * The messages from id $3 to $4 of these transactions. A transaction is in a window with all its rows or with none, so
 * these are the ones that were listed, and the index is searched once for each transaction instead of once for each row.
 * Their ids were listed too, so they are not asked for again. In the order of the index, which saves the server from
 * sorting them with all their columns: the list tells their places.
 */
export const readListed = (schema: string, more: string): string =>
  `SELECT ${columns}${more} FROM (${listedRows(schema)}) AS o ORDER BY o.xid, o.id`;

/** The same by id, but not beyond $5 bytes of payloads. */
export const readLargeListed = (schema: string, more: string): string => `SELECT ${columns}${more}, o.in_page
   FROM (${measured(listedRows(schema))}) AS o WHERE o.bytes_before < $5::bigint ORDER BY o.id`;

const listedRows = (schema: string): string => `SELECT * FROM ${schema}.outbox
   WHERE shard = $1::smallint AND xid = ANY ($2::xid8[]) AND id >= $3::bigint AND id <= $4::bigint`;

/**
 * Which shards may have something, without a lock and without a transaction id: an idle relay costs next to nothing. A
 * cursor that has not moved for a minute is moved even if there is nothing, because retention goes by it.
 *
 * In this form the planner goes through the index. Of an EXISTS it believes that a third of the log will do, and that
 * some of it stands at the beginning; so it reads all of it when there is nothing.
 *
 * `has_large`: some payload is so large that the server keeps it apart from its row (TOAST), whether it is visible or not.
 * While there is none a page is a few megabytes at most. It is asked here, and not with each lock, because a
 * backlog is locked for far more often than it is looked for.
 */
export const shardsWithWork = (schema: string): string =>
  `SELECT c.shard, EXISTS (
     SELECT FROM pg_inherits i JOIN pg_class t ON t.oid = i.inhrelid
     WHERE i.inhparent = '${schema}.outbox'::regclass AND pg_relation_size(t.reltoastrelid) > 0) AS has_large
   FROM ${schema}.relay_cursor c
   LEFT JOIN LATERAL (
     SELECT o.id FROM ${schema}.outbox o WHERE o.shard = c.shard AND o.xid >= pg_snapshot_xmax(c.prev)
     ORDER BY o.xid, o.id LIMIT 1) AS newer ON true
   LEFT JOIN LATERAL (
     SELECT one.id FROM pg_snapshot_xip(c.prev) AS running, LATERAL (
       SELECT o.id FROM ${schema}.outbox o WHERE o.shard = c.shard AND o.xid = running ORDER BY o.id LIMIT 1) AS one
     LIMIT 1) AS late ON true
   WHERE c.cur IS NOT NULL OR newer.id IS NOT NULL OR late.id IS NOT NULL
     OR c.advanced_at < clock_timestamp() - interval '1 minute'`;

/**
 * Begins the transaction, takes the one of these shards that has waited longest and that nobody holds, and looks at the
 * clock of transactions: in a statement of its own, after the lock, or it might be older than the cursor. One round
 * trip, hence no parameters.
 *
 * Without sequential scans, because a plan that was made while the table was empty would have one, and is kept. Without
 * parallel workers, which take more of the server than they bring; a long list is sorted in memory. Without the timeouts
 * that may be usual for this user: a large backlog takes as long as it takes, and what is too long is for the relay's own
 * times to say (transaction_timeout is there from Postgres 17 on). An advance that a
 * crash of the server takes back makes duplicates only, so nobody waits for the disk.
 */
export const beginAndLock = (schema: string, shards: readonly number[], idleTimeoutMs: number): string =>
  `BEGIN ISOLATION LEVEL READ COMMITTED;
   SELECT set_config('idle_in_transaction_session_timeout', '${Math.round(idleTimeoutMs)}', true),
     set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
     set_config('max_parallel_workers_per_gather', '0', true), set_config('work_mem', '64MB', true),
     set_config('synchronous_commit', 'off', true), set_config('statement_timeout', '0', true),
     CASE WHEN current_setting('transaction_timeout', true) <> '0' THEN set_config('transaction_timeout', '0', true) END;
   SELECT shard, prev::text, cur::text, last_id::text, window_done::text
   FROM ${schema}.relay_cursor WHERE shard IN (${shards.map(Number).join(', ')})
   ORDER BY advanced_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
   SELECT pg_current_snapshot()::text AS now, EXISTS (SELECT FROM ${schema}.relay_parked) AS has_parked`;

export interface CursorPlace {
  prev: string;
  cur: string | null;
  lastId: bigint;
  windowDone: number;
}

export function advanceAndCommit(
  schema: string,
  shard: number,
  { prev, cur, lastId, windowDone }: CursorPlace,
): string {
  return `UPDATE ${schema}.relay_cursor SET prev = ${snapshot(prev)}, cur = ${cur === null ? 'NULL' : snapshot(cur)},
     last_id = ${lastId}, window_done = ${windowDone}, advanced_at = clock_timestamp() WHERE shard = ${shard};
   COMMIT`;
}

/** It comes from the server and goes back there; all the same nothing but a snapshot becomes part of a statement. */
function snapshot(text: string): string {
  if (!/^\d+:\d+:[\d,]*$/.test(text)) throw new Error(`this is not a snapshot: ${text}`);
  return `'${text}'`;
}

export const park = (schema: string): string =>
  `INSERT INTO ${schema}.relay_parked
     (shard, topic, aggregate_id, msg_id, event_type, payload, headers, created_at, reason)
   SELECT $1::smallint, m.topic, m.aggregate_id, m.msg_id, m.event_type, m.payload, m.headers,
     to_timestamp(m.created_us / 1e6), m.reason
   FROM unnest($2::text[], $3::text[], $4::uuid[], $5::text[], $6::bytea[], $7::json[], $8::float8[], $9::text[])
     WITH ORDINALITY AS m (topic, aggregate_id, msg_id, event_type, payload, headers, created_us, reason, n)
   ORDER BY n`;

/** Why this database must not be published from, if anything. */
export const cursorFacts = (schema: string): string =>
  `SELECT pg_is_in_recovery() AS is_standby, (SELECT shards FROM ${schema}.settings) AS shards,
     count(*)::int AS cursors, max(c.shard) AS highest,
     bool_or(c.system_identifier <> (SELECT system_identifier FROM pg_control_system())) AS is_foreign,
     bool_or(pg_snapshot_xmax(c.prev) > pg_snapshot_xmax(pg_current_snapshot())) AS is_ahead
   FROM ${schema}.relay_cursor c`;

/** The number of the table that relays lock. */
export const cursorTable = (schema: string): string => `SELECT '${schema}.relay_cursor'::regclass::oid::text AS oid`;

/** What connections of commands are called that hold a shard while they publish, so that relays end those that are stuck. */
export const publishingName = 'twiceproof-publishing';

/**
 * Ends connections of other relays that hold a shard for longer than a relay can: no timeout of the server comes while it
 * waits for a client that takes nothing any more.
 *
 * As the user who has logged in: what a connection does, and whether it may be ended, is for that user to know, whatever
 * role it has taken. So the table is given by its number, and all is one message without parameters, which is a
 * transaction by itself.
 */
export const endStuckRelays = (cursorOid: string, olderThanMs: number): string =>
  `SET LOCAL ROLE NONE;
   SELECT a.pid, pg_terminate_backend(a.pid) AS ended FROM pg_stat_activity a
   WHERE a.datname = current_database() AND a.usename = session_user AND a.pid <> pg_backend_pid()
     AND a.application_name IN (current_setting('application_name'), '${publishingName}')
     AND a.xact_start < clock_timestamp() - ${Math.round(olderThanMs)} * interval '1 millisecond'
     AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.relation = ${BigInt(cursorOid)}
                 AND l.mode IN ('RowShareLock', 'RowExclusiveLock'))`;
