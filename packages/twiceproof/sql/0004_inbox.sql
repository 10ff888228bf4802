-- The inbox: which messages each consumer has dealt with. A message that is here changes nothing when it comes again.

-- One row. What lies below the floor was forgotten, or may be at any moment; from the ceiling on there is no partition yet.
-- Both are tested inside the INSERT that decides, so that no id can slip through between a look and the insert.
CREATE TABLE :"schema".inbox_bounds (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  floor uuid NOT NULL,
  ceiling uuid NOT NULL,
  CHECK (floor <= ceiling)
);

-- A UUIDv7 begins with its time, so the id alone says which partition it belongs to, and is unique across all of them.
-- Expiry is the end of a partition. There is no default one: it would have to be searched whenever another is detached.
CREATE TABLE :"schema".inbox (
  msg_id uuid NOT NULL,
  -- The name of who processes it, and not of its Kafka group: a group that is renamed must not do everything again.
  consumer text NOT NULL,
  -- Over type, key and value. The same id with other content is not the same message.
  content_hash bigint NOT NULL,
  processed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (msg_id, consumer)
) PARTITION BY RANGE (msg_id);

-- How far each partition of a topic is processed, written together with the effects: the truth about that, whatever the
-- broker believes. By the topic's id, because one of the same name may have been created later.
CREATE TABLE :"schema".inbox_position (
  consumer text NOT NULL,
  topic_id text NOT NULL,
  partition int NOT NULL,
  topic text NOT NULL,
  next_offset bigint NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (consumer, topic_id, partition)
) WITH (fillfactor = 50);

-- Messages that were not processed and wait for a person, written together with their inbox row if they have one.
CREATE TABLE :"schema".held (
  -- The order in which they are to be processed.
  seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
  consumer text NOT NULL,
  kind text NOT NULL CHECK (kind IN ('parked', 'dead', 'late', 'future', 'altered', 'unreadable')),
  -- Later messages of this key wait behind it.
  blocks_key boolean NOT NULL,
  -- Null of what is unreadable.
  aggregate_id text,
  msg_id uuid,
  -- As in the inbox; of what is unreadable, over the bytes of its record.
  content_hash bigint NOT NULL,
  topic text NOT NULL,
  topic_id text NOT NULL,
  partition int NOT NULL,
  -- Null where the transport has none.
  record_offset bigint,
  -- As they came: name and value of each header, in their order.
  record_key bytea,
  record_headers json NOT NULL,
  record_value bytea NOT NULL,
  reason text NOT NULL,
  held_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- What an operator wants: this one run again, or its whole key. The consumer that runs does it: nobody else has the handler.
  asked text CHECK (asked IN ('redrive', 'release'))
);

CREATE INDEX held_key ON :"schema".held (consumer, aggregate_id, seq);
-- Whether there are any is asked with each batch.
CREATE INDEX held_blocks ON :"schema".held (consumer) WHERE blocks_key;
CREATE INDEX held_asked ON :"schema".held (consumer, seq) WHERE asked IS NOT NULL;
-- A message is held once, however often it comes and whatever the inbox still knows of it. The content is a part of it: an
-- offset can be given again by a broker that has lost its end, and what is another message must not be taken for this one.
CREATE UNIQUE INDEX held_message ON :"schema".held (consumer, msg_id, content_hash) WHERE msg_id IS NOT NULL;
CREATE UNIQUE INDEX held_record ON :"schema".held (consumer, topic_id, partition, record_offset, content_hash)
  WHERE kind = 'unreadable';

-- Held messages that an operator has run or dropped. They may come again when the inbox has forgotten them, or never knew them.
CREATE TABLE :"schema".held_settled (
  msg_id uuid NOT NULL,
  consumer text NOT NULL,
  content_hash bigint NOT NULL,
  settled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (msg_id, consumer, content_hash)
);
