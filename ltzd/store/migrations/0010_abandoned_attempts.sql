-- A self-transfer takes the nonce of a transaction that nodes refuse permanently. It is another attempt
-- of the same intent with a higher fee. If it is mined, the intent ends cancelled.
ALTER TABLE attempts ADD COLUMN is_cancellation boolean NOT NULL DEFAULT false;

ALTER TABLE transactions
  ADD COLUMN is_cancelled boolean NOT NULL DEFAULT false,   -- the mined attempt is a self-transfer
  DROP CONSTRAINT transactions_state_check,
  ADD CONSTRAINT transactions_state_check
      CHECK (state IN ('signed', 'published', 'mined', 'confirmed', 'reverted', 'displaced', 'cancelled')),
  DROP CONSTRAINT transactions_check,
  ADD CONSTRAINT transactions_check
      CHECK ((state IN ('mined', 'confirmed', 'reverted', 'cancelled')) = (block_hash IS NOT NULL)),
  ADD CONSTRAINT transactions_cancelled CHECK (NOT (is_cancelled AND coalesce(succeeded, false)));

-- The number of cancelled mints with this reward: its next mint is a smaller batch.
ALTER TABLE rewards ADD COLUMN cancelled_mints smallint NOT NULL DEFAULT 0;

-- Self-transfers count as newer than all calls, and otherwise attempts are ordered by their fees.
DROP VIEW watched_transactions;
CREATE VIEW watched_transactions AS
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

-- A hash is shown once a node has accepted the transaction, or once the transaction is mined or settled.
CREATE OR REPLACE VIEW relay_progress AS
SELECT r.id, r.user_address, r.to_address, r.data, r.failure, r.state AS relay_state, r.transaction_id,
       t.wallet, t.state, t.succeeded, t.block_number, t.gas_used, t.effective_gas_price,
       coalesce(t.mined_attempt, a.hash) AS hash, coalesce(t.is_cancelled, false) AS is_cancelled
  FROM relays r
  LEFT JOIN transactions t ON t.id = r.transaction_id
  LEFT JOIN LATERAL (
       SELECT hash
         FROM attempts
        WHERE transaction_id = t.id AND (published_at IS NOT NULL OR t.state NOT IN ('signed', 'published'))
        ORDER BY published_at IS NULL, is_cancellation DESC, max_fee_per_gas DESC
        LIMIT 1) AS a ON true;

CREATE OR REPLACE VIEW redemption_progress AS
SELECT r.*, t.state,
       CASE WHEN p.relay_state = 'failed' THEN false
            WHEN t.state = 'mined' AND t.is_cancelled THEN NULL
            WHEN t.state IN ('mined', 'confirmed', 'reverted', 'displaced', 'cancelled')
            THEN coalesce(t.succeeded, false) END AS succeeded,
       t.mined_at, t.block_number, t.wallet, p.hash
  FROM redemptions r
  JOIN relay_progress p ON p.id = r.relay_id
  LEFT JOIN transactions t ON t.id = p.transaction_id;
