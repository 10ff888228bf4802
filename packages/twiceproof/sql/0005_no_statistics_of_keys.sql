-- These tables are asked by their keys alone, so no plan needs statistics. To collect them Postgres reads 30,000 pages in no
-- order whenever a tenth of a table has changed; of a large one most have to come from the disk, and every commit waits for
-- that same disk.

ALTER TABLE :"schema".idempotency_keys
  ALTER key_hash SET STATISTICS 0,
  ALTER id SET STATISTICS 0,
  ALTER principal SET STATISTICS 0,
  ALTER operation SET STATISTICS 0,
  ALTER idem_key SET STATISTICS 0,
  ALTER request_hash SET STATISTICS 0,
  ALTER hash_version SET STATISTICS 0,
  ALTER response_code SET STATISTICS 0,
  ALTER response_headers SET STATISTICS 0,
  ALTER response_body SET STATISTICS 0,
  ALTER render_version SET STATISTICS 0,
  ALTER created_at SET STATISTICS 0;

ALTER TABLE :"schema".answers
  ALTER id SET STATISTICS 0,
  ALTER response_code SET STATISTICS 0,
  ALTER response_headers SET STATISTICS 0,
  ALTER response_body SET STATISTICS 0,
  ALTER render_version SET STATISTICS 0;

-- With the partitions that are there; each new one is told so when it is made.
ALTER TABLE :"schema".inbox
  ALTER msg_id SET STATISTICS 0,
  ALTER consumer SET STATISTICS 0,
  ALTER content_hash SET STATISTICS 0,
  ALTER processed_at SET STATISTICS 0;
