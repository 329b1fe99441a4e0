-- What the index knows of itself. Blocks up to `audited_number` have been read a second time and compared with
-- the facts. While `stopped_reason` is set, the indexer writes nothing: it tells why, and the command that mends it.
ALTER TABLE chains
  ADD COLUMN audited_number bigint,
  ADD COLUMN stopped_reason text,
  ADD COLUMN stopped_at timestamptz,
  ADD CONSTRAINT chains_stopped CHECK ((stopped_reason IS NULL) = (stopped_at IS NULL));
