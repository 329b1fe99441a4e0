-- The operator's switches. Applying a brand's file does not change them.
ALTER TABLE brands
  ADD COLUMN disabled_at timestamptz,           -- every surface treats the brand as unknown
  ADD COLUMN paused_at   timestamptz;           -- its events are accepted, its rewards wait

-- Keys from before a rotation: each is valid until its expiry, however many rotations follow. Sealed
-- like the key itself, and bound to the expiry too.
CREATE TABLE retired_secrets (
  brand_id bytea NOT NULL,
  name     text  NOT NULL,
  until    timestamptz NOT NULL,
  key_id   text,
  sealed   bytea NOT NULL,
  PRIMARY KEY (brand_id, name, until),
  FOREIGN KEY (brand_id, name) REFERENCES brand_secrets ON DELETE CASCADE
);

-- A brand's use of its own limits in a window of time. The limit is a CHECK, so that no race exceeds it.
CREATE TABLE brand_usage (
  brand_id     bytea NOT NULL,
  kind         text NOT NULL CHECK (kind IN ('ltz_a_day', 'wallets_an_hour')),
  window_start timestamptz NOT NULL,
  used         bigint NOT NULL,
  maximum      bigint NOT NULL,
  CONSTRAINT usage_within_maximum CHECK (used <= maximum),
  PRIMARY KEY (brand_id, kind, window_start)
) WITH (fillfactor = 50);

-- Nonces of signed requests, each valid for one request, inserted with that request's other rows. Kept
-- for longer than a signature is valid.
CREATE TABLE request_nonces (
  brand_id   bytea NOT NULL,
  nonce      text NOT NULL,
  request_id uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (brand_id, nonce)
);
CREATE INDEX request_nonces_by_age ON request_nonces (created_at);

-- A reward that LTZ refuses although it mints others: a person examines it and requeues it. `failure`
-- stays then, so that the lane simulates its mint.
ALTER TABLE rewards
  ADD COLUMN failed_at timestamptz,
  ADD COLUMN failure   text,
  ADD CHECK (failed_at IS NULL OR failure IS NOT NULL),
  ADD CHECK (failed_at IS NULL OR transaction_id IS NULL);
DROP INDEX rewards_queued;
CREATE INDEX rewards_queued ON rewards (position) WHERE transaction_id IS NULL AND failed_at IS NULL;

-- For a queue in which some brands are paused, whose rewards may fill its head.
CREATE INDEX rewards_queued_by_brand ON rewards (brand_id, position) WHERE transaction_id IS NULL AND failed_at IS NULL;
CREATE INDEX brands_paused ON brands (id) WHERE paused_at IS NOT NULL;

-- Attempts of an intent are ordered by their fees: each replacement pays more than all before it.
CREATE OR REPLACE VIEW watched_transactions AS
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
