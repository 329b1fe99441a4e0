-- What an OP-stack chain took beside the gas of a mined transaction: for the data that it posts to its L1,
-- and as its operator's fee. 0 elsewhere, and for transactions from before this migration.
ALTER TABLE transactions ADD COLUMN l1_fee_wei numeric(78, 0) NOT NULL DEFAULT 0;

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
