-- The lane (its wallet) that is about to sign a queued reward or relay, so that other lanes take other ones.
-- The columns stay out of all indexes: a claim updates no index.
ALTER TABLE rewards ADD COLUMN claimed_by bytea;
-- The claim of a relay stays once it is sent: its lane holds the user's later relays back from other lanes.
ALTER TABLE relays ADD COLUMN claimed_by bytea;
UPDATE relays r SET claimed_by = t.wallet FROM transactions t WHERE t.id = r.transaction_id AND r.state = 'sent';

-- The references that a mint lane may still give out: from `next_seq` to before `end_seq`, within one word
-- of 256. A lane takes a whole word of the counter at a time, so that lanes never contend for references.
ALTER TABLE lanes
  ADD COLUMN next_seq bigint,
  ADD COLUMN end_seq  bigint,
  ADD CHECK ((next_seq IS NULL) = (end_seq IS NULL)),
  ADD CHECK (next_seq <= end_seq);
