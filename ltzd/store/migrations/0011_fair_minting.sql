-- A reward above the mint limit's capacity leaves the queue until the capacity is raised.
ALTER TABLE rewards ADD COLUMN above_limit boolean NOT NULL DEFAULT false;
CREATE INDEX rewards_above_limit ON rewards (ltz) WHERE above_limit;

-- The queue by payment and by brand. Columns that change when a mint is mined stay out of these
-- predicates, or that update would have to write every index anew. rewards_queued_by_brand serves
-- the version before this one, whose processes may still run, and can go with the next.
CREATE INDEX rewards_in_turn ON rewards (brand_id, position)
 WHERE transaction_id IS NULL AND failed_at IS NULL AND NOT above_limit AND kind <> 2;
CREATE INDEX rewards_queued_payments ON rewards (position)
 WHERE transaction_id IS NULL AND failed_at IS NULL AND NOT above_limit AND kind = 2;

-- Why the lane signs nothing though work may wait; NULL while nothing holds the lane. The reason
-- counts for a minute after `paused_seen_at`: a process that dies clears nothing.
ALTER TABLE lanes
  ADD COLUMN paused_for     text,
  ADD COLUMN paused_since   timestamptz,
  ADD COLUMN paused_seen_at timestamptz,
  ADD CHECK ((paused_for IS NULL) = (paused_since IS NULL));
