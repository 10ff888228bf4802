-- The outbox: an append-only log. Nothing ever updates a row; how far it is published stands in relay_cursor.

-- One row. The count of shards is here and nowhere else, so that every writer and every relay agree on it.
CREATE TABLE :"schema".settings (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  shards smallint NOT NULL CHECK (shards BETWEEN 1 AND 1024)
);

CREATE TABLE :"schema".outbox (
  -- With pg_visible_in_snapshot(xid, ...) a reader tells what has been committed since it looked last.
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  -- The order within a key: drawn while the aggregate's row lock is held, hence no cache of numbers.
  id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
  shard smallint NOT NULL,
  topic text NOT NULL,
  aggregate_id text NOT NULL,
  -- By which a consumer recognises the message. Never the id above: that one can be given twice after a restore.
  msg_id uuid NOT NULL,
  event_type text NOT NULL,
  -- Bytes, because jsonb reorders keys, drops duplicates and refuses \u0000.
  payload bytea NOT NULL,
  headers json,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY RANGE (xid);

-- Transaction ids are used up by every database of the cluster, so no range can be prepared for all of them.
CREATE TABLE :"schema".outbox_default PARTITION OF :"schema".outbox DEFAULT;

-- The only index: what the relay reads by.
CREATE INDEX outbox_log ON :"schema".outbox (shard, xid, id);

-- How far each shard is published: everything visible in prev, and of the window between prev and cur
-- what lies up to last_id. Locking a row is the right to publish its shard.
CREATE TABLE :"schema".relay_cursor (
  shard smallint PRIMARY KEY,
  prev pg_snapshot NOT NULL,
  cur pg_snapshot,
  last_id bigint NOT NULL DEFAULT 0,
  window_done bigint NOT NULL DEFAULT 0,
  advanced_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- Snapshots mean nothing in another cluster.
  system_identifier bigint NOT NULL
) WITH (fillfactor = 20);

-- Where messages stand in the log, for whoever counts them and need not read them.
CREATE VIEW :"schema".outbox_places AS SELECT shard, xid, id, created_at FROM :"schema".outbox;

-- What is committed and not yet published, and since when.
CREATE VIEW :"schema".outbox_pending AS
SELECT c.shard, count(o.id) AS pending, min(o.created_at) AS oldest
FROM :"schema".relay_cursor c
LEFT JOIN :"schema".outbox o
  ON o.shard = c.shard
  AND o.xid >= pg_snapshot_xmin(c.prev)
  AND NOT pg_visible_in_snapshot(o.xid, c.prev)
  AND NOT (c.cur IS NOT NULL AND o.id <= c.last_id AND pg_visible_in_snapshot(o.xid, c.cur))
GROUP BY c.shard;
