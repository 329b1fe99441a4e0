-- Paid checkout sessions: one row and one reward (kind 2) each, however often and by whichever endpoint
-- the payment is reported. `brand_id` is twenty zeros for a session without a brand.
CREATE TABLE payments (
  session_id        text PRIMARY KEY,
  reward_id         uuid NOT NULL UNIQUE,
  brand_id          bytea NOT NULL CHECK (octet_length(brand_id) = 20),
  wallet            bytea NOT NULL CHECK (octet_length(wallet) = 20),
  usd_cents         bigint NOT NULL CHECK (usd_cents > 0),
  ltz               bigint NOT NULL CHECK (ltz = usd_cents * 10),
  payment_intent_id text NOT NULL,
  created_at        timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX payments_by_intent ON payments (payment_intent_id);
CREATE INDEX payments_by_brand ON payments (brand_id, created_at);

-- Refunds and disputes as the provider reported them; one payment may have several. A reversal may
-- arrive before its payment; `session_id` is set once both are here.
CREATE TABLE payment_reversals (
  id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  provider_id       text NOT NULL UNIQUE,        -- the refund's or dispute's own, so that it counts once
  kind              text NOT NULL CHECK (kind IN ('refund', 'dispute')),
  payment_intent_id text NOT NULL,
  session_id        text REFERENCES payments,
  usd_cents         bigint NOT NULL CHECK (usd_cents > 0),
  reason            text,
  created_at        timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX payment_reversals_by_intent ON payment_reversals (payment_intent_id);

-- Webhooks to brands, inserted with the fact that they announce. The body is rendered from the fact at the
-- time of sending. `attempts` counts started attempts, since each of them may have arrived. A
-- pending row is due at `next_at`, which the sender moves first, so that a kill only delays it.
CREATE TABLE webhooks (
  id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  brand_id     bytea NOT NULL CHECK (octet_length(brand_id) = 20),
  kind         text NOT NULL CHECK (kind IN ('ltz_distributed', 'ltz_reverted', 'payment_reversed')),
  subject      uuid NOT NULL,                   -- the reward's id, or the reversal's
  transaction_hash bytea,                       -- of the announced mint, or of the reverted one
  revoked      boolean NOT NULL DEFAULT false,  -- an ltz_reverted has followed
  state        text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'exhausted')),
  attempts     integer NOT NULL DEFAULT 0,
  next_at      timestamptz NOT NULL DEFAULT now(),
  last_status  integer,
  last_error   text,
  created_at   timestamptz NOT NULL DEFAULT now(),
  delivered_at timestamptz
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX webhooks_once ON webhooks (subject, kind) WHERE NOT revoked;
CREATE INDEX webhooks_pending ON webhooks (brand_id, next_at) WHERE state = 'pending';
CREATE INDEX webhooks_by_brand ON webhooks (brand_id, created_at);

-- The state of a brand's endpoint. An endpoint is one URL: a new URL is not disabled.
CREATE TABLE webhook_endpoints (
  brand_id        bytea PRIMARY KEY CHECK (octet_length(brand_id) = 20),
  last_success_at timestamptz,
  disabled_url    text,
  disabled_at     timestamptz,
  disabled_reason text,
  CHECK ((disabled_url IS NULL) = (disabled_at IS NULL)),
  CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);
