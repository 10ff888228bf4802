TABLE answers
  id bigint NOT NULL STATISTICS 0
  response_code integer NOT NULL STATISTICS 0
  response_headers json STATISTICS 0
  response_body bytea STATISTICS 0
  render_version smallint NOT NULL STATISTICS 0
  answers_pkey PRIMARY KEY (id)
CREATE UNIQUE INDEX answers_pkey ON :schema.answers USING btree (id)

TABLE held
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY
  consumer text NOT NULL
  kind text NOT NULL
  blocks_key boolean NOT NULL
  aggregate_id text
  msg_id uuid
  content_hash bigint NOT NULL
  topic text NOT NULL
  topic_id text NOT NULL
  partition integer NOT NULL
  record_offset bigint
  record_key bytea
  record_headers json NOT NULL
  record_value bytea NOT NULL
  reason text NOT NULL
  held_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
  asked text
  held_asked_check CHECK ((asked = ANY (ARRAY['redrive'::text, 'release'::text])))
  held_kind_check CHECK ((kind = ANY (ARRAY['parked'::text, 'dead'::text, 'late'::text, 'future'::text, 'altered'::text, 'unreadable'::text])))
  held_pkey PRIMARY KEY (seq)
CREATE INDEX held_asked ON :schema.held USING btree (consumer, seq) WHERE (asked IS NOT NULL)
CREATE INDEX held_blocks ON :schema.held USING btree (consumer) WHERE blocks_key
CREATE INDEX held_key ON :schema.held USING btree (consumer, aggregate_id, seq)
CREATE UNIQUE INDEX held_message ON :schema.held USING btree (consumer, msg_id, content_hash) WHERE (msg_id IS NOT NULL)
CREATE UNIQUE INDEX held_pkey ON :schema.held USING btree (seq)
CREATE UNIQUE INDEX held_record ON :schema.held USING btree (consumer, topic_id, partition, record_offset, content_hash) WHERE (kind = 'unreadable'::text)

TABLE held_settled
  msg_id uuid NOT NULL
  consumer text NOT NULL
  content_hash bigint NOT NULL
  settled_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
  held_settled_pkey PRIMARY KEY (msg_id, consumer, content_hash)
CREATE UNIQUE INDEX held_settled_pkey ON :schema.held_settled USING btree (msg_id, consumer, content_hash)

TABLE idempotency_keys
  key_hash uuid NOT NULL STATISTICS 0
  id bigint NOT NULL GENERATED ALWAYS AS IDENTITY STATISTICS 0
  principal text NOT NULL STATISTICS 0
  operation text NOT NULL STATISTICS 0
  idem_key text NOT NULL STATISTICS 0
  request_hash bytea NOT NULL STATISTICS 0
  hash_version smallint NOT NULL STATISTICS 0
  response_code integer STATISTICS 0
  response_headers json STATISTICS 0
  response_body bytea STATISTICS 0
  render_version smallint STATISTICS 0
  created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp() STATISTICS 0
  idempotency_keys_pkey PRIMARY KEY (key_hash)
CREATE UNIQUE INDEX idempotency_keys_pkey ON :schema.idempotency_keys USING btree (key_hash)

TABLE inbox PARTITION BY RANGE (msg_id)
  msg_id uuid NOT NULL STATISTICS 0
  consumer text NOT NULL STATISTICS 0
  content_hash bigint NOT NULL STATISTICS 0
  processed_at timestamp with time zone NOT NULL DEFAULT clock_timestamp() STATISTICS 0
  inbox_pkey PRIMARY KEY (msg_id, consumer)
CREATE UNIQUE INDEX inbox_pkey ON ONLY :schema.inbox USING btree (msg_id, consumer)

TABLE inbox_bounds
  only_row boolean NOT NULL DEFAULT true
  floor uuid NOT NULL
  ceiling uuid NOT NULL
  inbox_bounds_check CHECK ((floor <= ceiling))
  inbox_bounds_only_row_check CHECK (only_row)
  inbox_bounds_pkey PRIMARY KEY (only_row)
CREATE UNIQUE INDEX inbox_bounds_pkey ON :schema.inbox_bounds USING btree (only_row)

TABLE inbox_position WITH {fillfactor=50}
  consumer text NOT NULL
  topic_id text NOT NULL
  partition integer NOT NULL
  topic text NOT NULL
  next_offset bigint NOT NULL
  updated_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
  inbox_position_pkey PRIMARY KEY (consumer, topic_id, partition)
CREATE UNIQUE INDEX inbox_position_pkey ON :schema.inbox_position USING btree (consumer, topic_id, partition)

TABLE migrations
  number integer NOT NULL
  name text NOT NULL
  applied_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
  migrations_pkey PRIMARY KEY (number)
CREATE UNIQUE INDEX migrations_pkey ON :schema.migrations USING btree (number)

TABLE outbox PARTITION BY RANGE (xid)
  xid xid8 NOT NULL DEFAULT pg_current_xact_id()
  id bigint NOT NULL GENERATED ALWAYS AS IDENTITY
  shard smallint NOT NULL
  topic text NOT NULL
  aggregate_id text NOT NULL
  msg_id uuid NOT NULL
  event_type text NOT NULL
  payload bytea NOT NULL STORAGE EXTERNAL
  headers json
  created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
CREATE INDEX outbox_log ON ONLY :schema.outbox USING btree (shard, xid, id)

TABLE outbox_default PARTITION DEFAULT
  xid xid8 NOT NULL DEFAULT pg_current_xact_id()
  id bigint NOT NULL GENERATED ALWAYS AS IDENTITY
  shard smallint NOT NULL
  topic text NOT NULL
  aggregate_id text NOT NULL
  msg_id uuid NOT NULL
  event_type text NOT NULL
  payload bytea NOT NULL STORAGE EXTERNAL
  headers json
  created_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
CREATE INDEX outbox_default_shard_xid_id_idx ON :schema.outbox_default USING btree (shard, xid, id)

VIEW outbox_pending
 SELECT c.shard,
    count(o.id) AS pending,
    min(o.created_at) AS oldest
   FROM (:schema.relay_cursor c
     LEFT JOIN :schema.outbox o ON (((o.shard = c.shard) AND (o.xid >= pg_snapshot_xmin(c.prev)) AND (NOT pg_visible_in_snapshot(o.xid, c.prev)) AND (NOT ((c.cur IS NOT NULL) AND (o.id <= c.last_id) AND pg_visible_in_snapshot(o.xid, c.cur))))))
  GROUP BY c.shard;

VIEW outbox_places
 SELECT shard,
    xid,
    id,
    created_at
   FROM :schema.outbox;

TABLE relay_cursor WITH {fillfactor=20}
  shard smallint NOT NULL
  prev pg_snapshot NOT NULL
  cur pg_snapshot
  last_id bigint NOT NULL DEFAULT 0
  window_done bigint NOT NULL DEFAULT 0
  advanced_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
  system_identifier bigint NOT NULL
  relay_cursor_pkey PRIMARY KEY (shard)
CREATE UNIQUE INDEX relay_cursor_pkey ON :schema.relay_cursor USING btree (shard)

TABLE relay_parked
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY
  shard smallint NOT NULL
  topic text NOT NULL
  aggregate_id text NOT NULL
  msg_id uuid NOT NULL
  event_type text NOT NULL
  payload bytea NOT NULL
  headers json
  created_at timestamp with time zone NOT NULL
  reason text NOT NULL
  parked_at timestamp with time zone NOT NULL DEFAULT clock_timestamp()
  relay_parked_pkey PRIMARY KEY (seq)
CREATE INDEX relay_parked_key ON :schema.relay_parked USING btree (shard, aggregate_id, seq)
CREATE UNIQUE INDEX relay_parked_pkey ON :schema.relay_parked USING btree (seq)

TABLE settings
  only_row boolean NOT NULL DEFAULT true
  shards smallint NOT NULL
  settings_only_row_check CHECK (only_row)
  settings_pkey PRIMARY KEY (only_row)
  settings_shards_check CHECK (((shards >= 1) AND (shards <= 1024)))
CREATE UNIQUE INDEX settings_pkey ON :schema.settings USING btree (only_row)
