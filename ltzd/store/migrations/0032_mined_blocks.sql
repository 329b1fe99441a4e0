-- Thousands of mined transactions may wait for finality, in a few dozen blocks. A lane looks at the blocks
-- alone with each new head, and at their transactions once a block is final, or is not indexed.
CREATE INDEX transactions_mined ON transactions (wallet, block_number, block_hash) WHERE state = 'mined';
