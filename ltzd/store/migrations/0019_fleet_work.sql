-- The lane (its wallet) that is about to sign a queued reward or relay, so that other lanes take other ones.
-- The columns stay out of all indexes: a claim updates no index.
ALTER TABLE rewards ADD COLUMN claimed_by bytea;
ALTER TABLE relays ADD COLUMN claimed_by bytea;

-- The references that a mint lane may still give out: from `next_seq` to before `end_seq`, within one word
-- of 256. A lane takes a whole word of the counter at a time, so that lanes never contend for references.
ALTER TABLE lanes
  ADD COLUMN next_seq bigint,
  ADD COLUMN end_seq  bigint,
  ADD CHECK ((next_seq IS NULL) = (end_seq IS NULL)),
  ADD CHECK (next_seq <= end_seq);
