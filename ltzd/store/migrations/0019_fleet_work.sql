-- The lane that is about to sign a queued reward, so that other lanes take other rewards: its wallet, and
-- its epoch in eight bytes. A claim counts while the lane is being served in this epoch, so a dead lane's
-- claims need no clearing. For relays the wallet. The columns stay out of all indexes: a claim updates none.
ALTER TABLE rewards ADD COLUMN claimed_by bytea;
-- The claim of a relay stays once it is sent: its lane holds the user's later relays back from other lanes.
ALTER TABLE relays ADD COLUMN claimed_by bytea;
UPDATE relays r SET claimed_by = t.wallet FROM transactions t WHERE t.id = r.transaction_id AND r.state = 'sent';

-- How often a mint with this reward ran out of gas. A later mint is smaller and has more gas.
ALTER TABLE rewards ADD COLUMN out_of_gas_mints smallint NOT NULL DEFAULT 0;

-- The references that a mint lane may still give out: from `next_seq` to before `end_seq`, which is the end
-- of a word of 256, and then the word at `following_seq`. A lane takes whole words from the counter, so that
-- lanes never contend for references.
ALTER TABLE lanes
  ADD COLUMN next_seq      bigint,
  ADD COLUMN end_seq       bigint,
  ADD COLUMN following_seq bigint,
  ADD CHECK ((next_seq IS NULL) = (end_seq IS NULL)),
  ADD CHECK (next_seq <= end_seq),
  ADD CHECK (following_seq IS NULL OR next_seq < end_seq);

-- The queue's own indexes have a predicate that only the queue's query has. With IS NULL the planner also
-- considered indexes in another order, and took these after statistics of an empty queue. num_nulls is
-- true of the same rows.
DROP INDEX rewards_mintable_by_brand, rewards_mintable_payments, rewards_queued_by_brand;
CREATE INDEX rewards_mintable_by_brand ON rewards (brand_id, position)
 WHERE num_nulls(transaction_id, failed_at) = 2 AND NOT above_limit AND kind <> 2;
CREATE INDEX rewards_mintable_payments ON rewards (position)
 WHERE num_nulls(transaction_id, failed_at) = 2 AND NOT above_limit AND kind = 2;
