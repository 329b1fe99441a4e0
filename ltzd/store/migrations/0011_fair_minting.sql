-- A reward above the mint limit's capacity leaves the queue until the capacity is raised.
ALTER TABLE rewards ADD COLUMN above_limit boolean NOT NULL DEFAULT false;
CREATE INDEX rewards_above_limit ON rewards (ltz) WHERE above_limit;

-- The queue by payment and by brand. Columns that change when a mint is mined stay out of these
-- predicates, so that recording a mint updates no index. rewards_queued_by_brand serves processes of
-- the version before this one, which may still run. A later migration can drop it.
CREATE INDEX rewards_in_turn ON rewards (brand_id, position)
 WHERE transaction_id IS NULL AND failed_at IS NULL AND NOT above_limit AND kind <> 2;
CREATE INDEX rewards_queued_payments ON rewards (position)
 WHERE transaction_id IS NULL AND failed_at IS NULL AND NOT above_limit AND kind = 2;

-- The reason why the lane signs nothing although rewards may be queued, or NULL. The reason is valid for
-- a minute after `paused_seen_at`, since a process that dies does not clear it.
ALTER TABLE lanes
  ADD COLUMN paused_for     text,
  ADD COLUMN paused_since   timestamptz,
  ADD COLUMN paused_seen_at timestamptz,
  ADD CHECK ((paused_for IS NULL) = (paused_since IS NULL));
