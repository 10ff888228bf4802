-- Messages that cannot be published as they are, and those of the same key behind them. They wait for a person. The
-- cursor has passed them, so this is where they are until they are released or dropped on purpose.
CREATE TABLE :"schema".relay_parked (
  -- The order in which they are to be published.
  seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
  shard smallint NOT NULL,
  topic text NOT NULL,
  aggregate_id text NOT NULL,
  msg_id uuid NOT NULL,
  event_type text NOT NULL,
  payload bytea NOT NULL,
  headers json,
  created_at timestamptz NOT NULL,
  reason text NOT NULL,
  parked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX relay_parked_key ON :"schema".relay_parked (shard, aggregate_id, seq);
