-- Admitted calls that users asked the operator to send (POST /relay). A refused call leaves no row,
-- except a call with an idempotency key that would revert: the same answer is given again (failed).
CREATE TABLE relays (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  user_address    bytea NOT NULL CHECK (octet_length(user_address) = 20),
  to_address      bytea NOT NULL,
  data            bytea NOT NULL,
  function        text NOT NULL,
  wallet          bytea,                        -- the only lane that may send it
  takes_turns     boolean NOT NULL,             -- one such relay of a user is in flight at a time
  collection_id   numeric(78, 0),               -- of a claim
  expected_claims numeric(78, 0),
  idempotency_key text,                         -- cleared after a day
  fingerprint     bytea NOT NULL,               -- of the request's body
  gas_limit       bigint NOT NULL,
  worst_wei       numeric(78, 0) NOT NULL,      -- the most that it may cost
  window_start    timestamptz,                  -- the start of the user's hour that counts it
  state           text NOT NULL CHECK (state IN ('queued', 'sent', 'mined', 'failed')),
  failure         text,
  transaction_id  bigint UNIQUE REFERENCES transactions,
  created_at      timestamptz NOT NULL DEFAULT now(),
  CHECK ((state IN ('sent', 'mined')) = (transaction_id IS NOT NULL)),
  CHECK ((state = 'failed') = (failure IS NOT NULL)),
  CONSTRAINT relays_counted CHECK ((state = 'failed') = (window_start IS NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX relays_by_key ON relays (user_address, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX relays_by_window ON relays (user_address, window_start) WHERE window_start IS NOT NULL;
CREATE INDEX relays_open ON relays (user_address) WHERE state IN ('queued', 'sent');
CREATE INDEX relays_queued ON relays (id) WHERE state = 'queued';
CREATE INDEX relays_keys_by_age ON relays (created_at) WHERE idempotency_key IS NOT NULL;

ALTER TABLE transactions
  DROP CONSTRAINT transactions_kind_check,
  ADD CONSTRAINT transactions_kind_check CHECK (kind IN ('mint', 'relay')),
  ADD COLUMN mined_attempt       bytea,         -- known from a receipt, like the next two
  ADD COLUMN gas_used            bigint,
  ADD COLUMN effective_gas_price bigint,
  ADD CHECK ((mined_attempt IS NULL) = (gas_used IS NULL)),
  ADD CHECK ((mined_attempt IS NULL) = (effective_gas_price IS NULL));

-- The time at which a process last reported that it serves the lane.
ALTER TABLE lanes ADD COLUMN served_at timestamptz;

-- A view keeps the columns of its creation, so it is created again.
DROP VIEW watched_transactions;
CREATE VIEW watched_transactions AS
SELECT t.*, a.hashes, a.raw, a.max_fee_per_gas, a.max_priority_fee_per_gas
  FROM transactions t
 CROSS JOIN LATERAL (
       SELECT array_agg(hash ORDER BY max_fee_per_gas DESC) AS hashes,
              (array_agg(raw ORDER BY max_fee_per_gas DESC))[1] AS raw,
              max(max_fee_per_gas) AS max_fee_per_gas,
              max(max_priority_fee_per_gas) AS max_priority_fee_per_gas
         FROM attempts
        WHERE transaction_id = t.id) a
 WHERE t.state IN ('signed', 'published', 'mined');

-- The progress of a relay. It shows the mined attempt, or else the published one with the highest fee.
CREATE VIEW relay_progress AS
SELECT r.id, r.user_address, r.to_address, r.data, r.failure, r.state AS relay_state, r.transaction_id,
       t.wallet, t.state, t.succeeded, t.block_number, t.gas_used, t.effective_gas_price,
       coalesce(t.mined_attempt, a.hash) AS hash
  FROM relays r
  LEFT JOIN transactions t ON t.id = r.transaction_id
  LEFT JOIN LATERAL (
       SELECT hash
         FROM attempts
        WHERE transaction_id = t.id
        ORDER BY published_at IS NULL, max_fee_per_gas DESC
        LIMIT 1) AS a ON true;
