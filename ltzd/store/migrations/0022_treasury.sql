-- A treasury wallet fills the operator's other wallets: its transactions transfer native value.
-- A transaction is voided once its wallet may not mint at a final block: its rewards are queued again.
ALTER TABLE transactions
  ADD COLUMN value_wei numeric(78, 0) NOT NULL DEFAULT 0 CHECK (value_wei >= 0),
  DROP CONSTRAINT transactions_kind_check,
  ADD CONSTRAINT transactions_kind_check CHECK (kind IN ('mint', 'relay', 'top_up')),
  DROP CONSTRAINT transactions_state_check,
  ADD CONSTRAINT transactions_state_check
      CHECK (state IN ('signed', 'published', 'mined', 'confirmed', 'reverted', 'displaced', 'cancelled', 'voided')),
  ADD CONSTRAINT transactions_only_top_ups_pay CHECK (value_wei = 0 OR kind = 'top_up');

ALTER TABLE lanes
  DROP CONSTRAINT lanes_kind_check,
  ADD CONSTRAINT lanes_kind_check CHECK (kind IN ('mint', 'relay', 'treasury'));
ALTER TABLE operator_wallets
  DROP CONSTRAINT operator_wallets_kind_check,
  ADD CONSTRAINT operator_wallets_kind_check CHECK (kind IN ('mint', 'relay', 'treasury'));

-- A wallet has at most one top-up that is not final.
CREATE UNIQUE INDEX transactions_open_top_ups ON transactions (chain_id, to_address)
 WHERE kind = 'top_up' AND state IN ('signed', 'published', 'mined');
-- A treasury's top-ups of a day.
CREATE INDEX transactions_top_ups ON transactions (chain_id, wallet, created_at) WHERE kind = 'top_up';

-- A view keeps the columns of its creation, so it is created again.
DROP VIEW open_transactions;
CREATE VIEW open_transactions AS
SELECT t.*, a.hashes, a.raw, a.max_fee_per_gas, a.max_priority_fee_per_gas, a.cancellations,
       a.call_max_fee_per_gas
  FROM transactions t
 CROSS JOIN LATERAL (
       SELECT array_agg(hash ORDER BY is_cancellation DESC, max_fee_per_gas DESC) AS hashes,
              (array_agg(raw ORDER BY is_cancellation DESC, max_fee_per_gas DESC))[1] AS raw,
              max(max_fee_per_gas) AS max_fee_per_gas,
              max(max_priority_fee_per_gas) AS max_priority_fee_per_gas,
              coalesce(array_agg(hash) FILTER (WHERE is_cancellation), '{}') AS cancellations,
              max(max_fee_per_gas) FILTER (WHERE NOT is_cancellation) AS call_max_fee_per_gas
         FROM attempts
        WHERE transaction_id = t.id) a
 WHERE t.state IN ('signed', 'published', 'mined');

-- Rewards without a mint whose reference another mint has used at a final block, such as a thief's: LTZ mints
-- each seq once, so they can only be minted under new references.
CREATE VIEW skipped_rewards AS
SELECT r.id, r.transaction_id
  FROM rewards r
 WHERE r.mint_block_hash IS NULL AND r.seq IS NOT NULL
   AND EXISTS (SELECT FROM mints m
                 JOIN chains c ON m.block_number <= c.final_number
                WHERE substring(m.reference FROM 25) = int8send(r.seq));
