-- The relay wallets also send brands' calls, which count in no user's hour.
ALTER TABLE relays
  ADD COLUMN brand_id bytea,
  DROP CONSTRAINT relays_counted,
  ADD CONSTRAINT relays_counted CHECK ((window_start IS NULL) = (state = 'failed' OR brand_id IS NOT NULL));

-- Charges that a brand redeemed (POST /redeem-perk): written with the relay that redeems them on chain.
CREATE TABLE redemptions (
  id               uuid PRIMARY KEY,              -- the first 16 bytes of its reference on chain
  brand_id         bytea NOT NULL,
  collection_id    bigint NOT NULL,
  token_id         numeric(78, 0) NOT NULL,
  holder           bytea NOT NULL,
  amount           bigint NOT NULL CHECK (amount > 0),
  remaining_before bigint NOT NULL CHECK (remaining_before >= amount),
  max_charges      bigint NOT NULL,
  reference        text,                          -- the brand's own text
  idempotency_key  text,
  fingerprint      bytea NOT NULL,
  relay_id         bigint NOT NULL UNIQUE REFERENCES relays ON DELETE CASCADE,
  created_at       timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX redemptions_by_key ON redemptions (brand_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX redemptions_by_token ON redemptions (token_id);

CREATE VIEW redemption_progress AS
SELECT r.*, t.state, CASE WHEN t.state IN ('mined', 'confirmed', 'reverted', 'displaced') THEN coalesce(t.succeeded, false) END AS succeeded,
       t.mined_at, t.block_number, t.wallet, p.hash
  FROM redemptions r
  JOIN relay_progress p ON p.id = r.relay_id
  LEFT JOIN transactions t ON t.id = p.transaction_id;

-- An API key names its brand.
CREATE INDEX brand_secrets_by_api_key ON brand_secrets (sealed) WHERE name = 'api_key';
CREATE INDEX retired_secrets_by_api_key ON retired_secrets (sealed) WHERE name = 'api_key';

-- Covers all that the file says of the constraint: a changed constraint has no results yet.
ALTER TABLE constraint_results ADD COLUMN fingerprint bytea;
