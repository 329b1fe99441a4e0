-- Units: `ltz` columns hold whole LTZ; `amount` columns hold LTZ's smallest unit (10^-18); fees are
-- wei per gas. Addresses have 20 bytes, hashes and references 32. Times are the database's.

-- The whole configuration of each brand, as last applied.
CREATE TABLE brands (
  id            bytea PRIMARY KEY CHECK (octet_length(id) = 20),
  name          text NOT NULL,
  configuration jsonb NOT NULL,
  revision      bigint NOT NULL,
  created_at    timestamptz NOT NULL DEFAULT now(),
  updated_at    timestamptz NOT NULL DEFAULT now()
);
CREATE SEQUENCE brand_revisions;

-- Secrets that must be readable are sealed (AES-GCM, bound to brand and name); an API key is a SHA-256.
CREATE TABLE brand_secrets (
  brand_id   bytea NOT NULL REFERENCES brands ON DELETE CASCADE,
  name       text  NOT NULL CHECK (name IN ('security_key', 'api_key', 'webhook_secret', 'verification_token')),
  key_id     text,
  sealed     bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (brand_id, name)
);

CREATE TABLE users (
  id               uuid PRIMARY KEY,
  email_key        text NOT NULL UNIQUE,        -- the address in lower case
  identity_subject text NOT NULL,
  wallet           bytea NOT NULL CHECK (octet_length(wallet) = 20),
  created_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX users_by_wallet ON users (wallet);

CREATE TABLE events (
  id              uuid PRIMARY KEY,
  brand_id        bytea NOT NULL,
  event_type      text NOT NULL,
  email           text NOT NULL,                -- as given
  user_id         uuid NOT NULL,
  domain          text NOT NULL,
  source          text,
  user_identifier text,
  metadata        jsonb,
  ltz             bigint NOT NULL CHECK (ltz >= 0),
  created_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX events_by_brand ON events (brand_id, created_at);

-- One row per brand, event type and user: the facts for duplicate window, cooldown and the user's
-- maximum. `claims` grows by one with each event, so it is also the version that a writer compares.
CREATE TABLE claims (
  brand_id      bytea NOT NULL,
  event_type    text NOT NULL,
  email_key     text NOT NULL,
  claims        bigint NOT NULL DEFAULT 0,
  last_event_id uuid,
  last_event_at timestamptz,
  PRIMARY KEY (brand_id, event_type, email_key)
) WITH (fillfactor = 70);

-- The claims of all users together, only for types that have a global maximum.
CREATE TABLE claim_totals (
  brand_id   bytea NOT NULL,
  event_type text NOT NULL,
  claims     bigint NOT NULL,
  maximum    bigint NOT NULL,
  CONSTRAINT claims_within_maximum CHECK (claims <= maximum),
  PRIMARY KEY (brand_id, event_type)
) WITH (fillfactor = 50);

-- The chain that this database follows, the indexer's cursor on it, and its fencing epoch.
CREATE TABLE chains (
  chain_id     bigint PRIMARY KEY,
  genesis_hash bytea NOT NULL CHECK (octet_length(genesis_hash) = 32),
  ltz          bytea NOT NULL CHECK (octet_length(ltz) = 20),
  first_block  bigint NOT NULL,
  epoch        bigint NOT NULL DEFAULT 0,
  number       bigint NOT NULL,                 -- the last block whose facts are here
  hash         bytea NOT NULL,
  head_number  bigint NOT NULL,
  final_number bigint NOT NULL,
  updated_at   timestamptz NOT NULL DEFAULT now()
);

-- The next `seq` of a reward's reference (values.reward_reference). Not a sequence: those leave gaps.
CREATE TABLE reference_counters (
  chain_id bigint NOT NULL,
  ltz      bytea NOT NULL,
  next_seq bigint NOT NULL,
  PRIMARY KEY (chain_id, ltz)
);

-- Canonical blocks only, keyed by hash; a reorg deletes its blocks.
CREATE TABLE blocks (
  hash        bytea PRIMARY KEY,
  number      bigint NOT NULL UNIQUE,
  parent_hash bytea NOT NULL,
  mined_at    timestamptz NOT NULL,
  seen_at     timestamptz NOT NULL DEFAULT now()
);

-- Facts: append-only rows of canonical logs.
CREATE TABLE transfers (
  block_hash       bytea NOT NULL,
  log_index        integer NOT NULL,
  block_number     bigint NOT NULL,
  transaction_hash bytea NOT NULL,
  sender           bytea NOT NULL,
  recipient        bytea NOT NULL,
  amount           numeric(78, 0) NOT NULL,
  PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX transfers_by_block ON transfers (block_number);

CREATE TABLE mints (
  block_hash       bytea NOT NULL,
  log_index        integer NOT NULL,
  block_number     bigint NOT NULL,
  transaction_hash bytea NOT NULL,
  recipient        bytea NOT NULL,
  reference        bytea NOT NULL CHECK (octet_length(reference) = 32),
  amount           numeric(78, 0) NOT NULL,
  PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX mints_by_block ON mints (block_number);

-- Derived from transfers, in the same database transaction.
CREATE TABLE balances (
  wallet bytea PRIMARY KEY,
  amount numeric(78, 0) NOT NULL CHECK (amount >= 0)
) WITH (fillfactor = 70);

-- Wallets that sign. One process at a time holds a lane (an advisory lock); each term increments its epoch.
CREATE TABLE lanes (
  chain_id   bigint NOT NULL,
  wallet     bytea NOT NULL,
  kind       text NOT NULL CHECK (kind IN ('mint', 'relay')),
  epoch      bigint NOT NULL DEFAULT 0,
  next_nonce bigint NOT NULL,
  PRIMARY KEY (chain_id, wallet)
);

-- Intents: every transaction of ltzd is first a row here, its nonce included.
CREATE TABLE transactions (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  chain_id     bigint NOT NULL,
  wallet       bytea NOT NULL,
  nonce        bigint NOT NULL,
  kind         text NOT NULL CHECK (kind IN ('mint')),
  to_address   bytea NOT NULL,
  data         bytea NOT NULL,
  gas_limit    bigint NOT NULL,
  state        text NOT NULL CHECK (state IN ('signed', 'published', 'mined', 'confirmed', 'reverted', 'displaced')),
  succeeded    boolean,
  block_number bigint,
  block_hash   bytea,
  created_at   timestamptz NOT NULL DEFAULT now(),
  published_at timestamptz,
  mined_at     timestamptz,
  settled_at   timestamptz,
  UNIQUE (chain_id, wallet, nonce),
  CHECK ((state IN ('mined', 'confirmed', 'reverted')) = (block_hash IS NOT NULL))
);
CREATE INDEX transactions_open ON transactions (wallet, nonce) WHERE state IN ('signed', 'published', 'mined');

-- Signed publications of an intent: stored before they are published, watched until finality.
CREATE TABLE attempts (
  hash                     bytea PRIMARY KEY,
  transaction_id           bigint NOT NULL REFERENCES transactions,
  raw                      bytea NOT NULL,
  max_fee_per_gas          bigint NOT NULL,
  max_priority_fee_per_gas bigint NOT NULL,
  created_at               timestamptz NOT NULL DEFAULT now(),
  published_at             timestamptz
);
CREATE INDEX attempts_by_transaction ON attempts (transaction_id);

CREATE VIEW watched_transactions AS
SELECT t.*, a.hashes, a.raw, a.max_fee_per_gas
  FROM transactions t
 CROSS JOIN LATERAL (
       SELECT array_agg(hash ORDER BY created_at DESC) AS hashes,
              (array_agg(raw ORDER BY created_at DESC))[1] AS raw,
              max(max_fee_per_gas) AS max_fee_per_gas
         FROM attempts
        WHERE transaction_id = t.id) a
 WHERE t.state IN ('signed', 'published', 'mined');

-- LTZ owed to wallets. A reward without a transaction waits for the mint lane. `seq` is assigned with the
-- first batch and never changes. The indexer writes the mint_ columns; no index holds them, so that
-- recording a mint updates no index.
CREATE TABLE rewards (
  id                    uuid PRIMARY KEY,        -- the event's id for kind 1
  kind                  smallint NOT NULL CHECK (kind BETWEEN 1 AND 4),
  brand_id              bytea NOT NULL,
  wallet                bytea NOT NULL CHECK (octet_length(wallet) = 20),
  ltz                   bigint NOT NULL CHECK (ltz > 0),
  position              bigint GENERATED ALWAYS AS IDENTITY,
  seq                   bigint UNIQUE,
  transaction_id        bigint REFERENCES transactions,
  mint_block_number     bigint,
  mint_block_hash       bytea,
  mint_transaction_hash bytea,
  created_at            timestamptz NOT NULL DEFAULT now(),
  CHECK ((mint_block_hash IS NULL) = (mint_transaction_hash IS NULL)),
  CHECK (transaction_id IS NULL OR seq IS NOT NULL)
) WITH (fillfactor = 70);
CREATE INDEX rewards_queued ON rewards (position) WHERE transaction_id IS NULL;
CREATE INDEX rewards_by_transaction ON rewards (transaction_id);
