-- The idempotency keys: who has asked for what under which key, and what was answered.
-- One flat table. Against partitions by time it measured cheaper for each key, and needs no rule for the boundary.

CREATE TABLE :"schema".idempotency_keys (
  -- 128 bits of SHA-256 over (principal, operation, key), of which the first 48 give way to the time of a key that is a
  -- UUIDv7: short, of one size, and whatever a client sends.
  key_hash uuid PRIMARY KEY,
  id bigint GENERATED ALWAYS AS IDENTITY,
  principal text NOT NULL,
  operation text NOT NULL,
  idem_key text NOT NULL,
  request_hash bytea NOT NULL,
  -- How request_hash was made: a retry may come to a newer version of the program.
  hash_version smallint NOT NULL,
  -- The answer, where it was known when the key was claimed; otherwise it stands in answers.
  response_code int,
  response_headers json,
  response_body bytea,
  -- Which version of the rendering function the answer is meant for.
  render_version smallint,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Answers that became known after the claim. A row of its own costs less than an update of the claim.
CREATE TABLE :"schema".answers (
  id bigint PRIMARY KEY,
  response_code int NOT NULL,
  response_headers json,
  -- Null: the answer was too large to be kept. The work is done and must not be done again.
  response_body bytea,
  render_version smallint NOT NULL
);
