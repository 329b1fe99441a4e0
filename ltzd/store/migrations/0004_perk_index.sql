-- The contracts whose facts were written with every block up to the cursor, and the last term that did
-- so. A term of a version that knows only LTZ updates neither, so the next term sees that the index
-- must be rebuilt from the first block.
ALTER TABLE chains
  ADD COLUMN contracts       bytea[],
  ADD COLUMN contracts_epoch bigint;

-- Facts of PerkNFT, PointsSale and BusinessEscrow: append-only rows of canonical logs. A token's id is
-- its collection's, 32 bits to the left, and its serial number. References are the callers'.
CREATE TABLE perk_transfers (
  block_hash       bytea NOT NULL,
  log_index        integer NOT NULL,
  block_number     bigint NOT NULL,
  transaction_hash bytea NOT NULL,
  token_id         numeric(78, 0) NOT NULL,
  sender           bytea NOT NULL,
  recipient        bytea NOT NULL,
  PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX perk_transfers_by_block ON perk_transfers (block_number);
CREATE INDEX perk_transfers_by_token ON perk_transfers (token_id, block_number, log_index);

CREATE TABLE perk_claims (
  block_hash       bytea NOT NULL,
  log_index        integer NOT NULL,
  block_number     bigint NOT NULL,
  transaction_hash bytea NOT NULL,
  user_address     bytea NOT NULL,
  collection_id    bigint NOT NULL,
  token_id         numeric(78, 0) NOT NULL,
  price            numeric(78, 0) NOT NULL,
  claims           integer NOT NULL,             -- the user's in the collection, this one included
  reference        bytea NOT NULL CHECK (octet_length(reference) = 32),
  PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX perk_claims_by_block ON perk_claims (block_number);
CREATE INDEX perk_claims_by_user ON perk_claims (user_address, collection_id);

CREATE TABLE charge_redemptions (
  block_hash       bytea NOT NULL,
  log_index        integer NOT NULL,
  block_number     bigint NOT NULL,
  transaction_hash bytea NOT NULL,
  token_id         numeric(78, 0) NOT NULL,
  holder           bytea NOT NULL,
  reference        bytea NOT NULL CHECK (octet_length(reference) = 32),
  amount           integer NOT NULL,
  remaining        integer NOT NULL,
  PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX charge_redemptions_by_block ON charge_redemptions (block_number);
CREATE INDEX charge_redemptions_by_token ON charge_redemptions (token_id, block_number, log_index);

-- Created, updated, or moved to another brand: each row holds the values of its log, and NULL for the rest.
CREATE TABLE collection_facts (
  block_hash         bytea NOT NULL,
  log_index          integer NOT NULL,
  block_number       bigint NOT NULL,
  transaction_hash   bytea NOT NULL,
  collection_id      bigint NOT NULL,
  brand              bytea,
  payout             bytea,
  price              numeric(78, 0),
  max_supply         bigint,
  max_per_user       integer,
  is_active          boolean,
  charges            integer,
  requires_signature boolean,
  uri                text,
  PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX collection_facts_by_block ON collection_facts (block_number);
CREATE INDEX collection_facts_by_collection ON collection_facts (collection_id, block_number, log_index);

CREATE TABLE item_settings (
  block_hash       bytea NOT NULL,
  log_index        integer NOT NULL,
  block_number     bigint NOT NULL,
  transaction_hash bytea NOT NULL,
  item_id          numeric(78, 0) NOT NULL,      -- a registrar's choice: any uint256
  brand            bytea NOT NULL,
  payout           bytea NOT NULL,
  price            numeric(78, 0) NOT NULL,
  stock            bigint NOT NULL,
  max_per_order    integer NOT NULL,
  is_active        boolean NOT NULL,
  burns            boolean NOT NULL,
  metadata         bytea NOT NULL,
  PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX item_settings_by_block ON item_settings (block_number);
CREATE INDEX item_settings_by_item ON item_settings (item_id, block_number, log_index);

CREATE TABLE purchases (
  block_hash       bytea NOT NULL,
  log_index        integer NOT NULL,
  block_number     bigint NOT NULL,
  transaction_hash bytea NOT NULL,
  buyer            bytea NOT NULL,
  item_id          numeric(78, 0) NOT NULL,
  reference        bytea NOT NULL CHECK (octet_length(reference) = 32),
  quantity         bigint NOT NULL,
  paid             numeric(78, 0) NOT NULL,
  PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX purchases_by_block ON purchases (block_number);
CREATE INDEX purchases_by_buyer ON purchases (buyer, reference);

CREATE TABLE deal_facts (
  block_hash       bytea NOT NULL,
  log_index        integer NOT NULL,
  block_number     bigint NOT NULL,
  transaction_hash bytea NOT NULL,
  deal_id          bytea NOT NULL CHECK (octet_length(deal_id) = 32),
  state            text NOT NULL CHECK (state IN ('locked', 'released', 'refunded', 'split')),
  user_address     bytea NOT NULL,
  business         bytea NOT NULL,
  to_user          numeric(78, 0) NOT NULL,      -- 0 while it is locked
  to_business      numeric(78, 0) NOT NULL,
  locked           numeric(78, 0) NOT NULL,      -- 0 once it has ended
  refund_after     bigint,                       -- Unix seconds; only the lock's log has it
  decided_by       bytea,
  PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX deal_facts_by_block ON deal_facts (block_number);
CREATE INDEX deal_facts_by_deal ON deal_facts (deal_id, block_number, log_index);

-- Derived from these facts, in the same database transaction.
CREATE TABLE tokens (
  token_id         numeric(78, 0) PRIMARY KEY,
  collection_id    bigint NOT NULL,
  holder           bytea NOT NULL,
  remaining        integer,                      -- NULL: all its charges
  claimed_at       timestamptz NOT NULL,
  last_redeemed_at timestamptz,
  block_number     bigint NOT NULL               -- of its newest fact
) WITH (fillfactor = 70);
CREATE INDEX tokens_by_holder ON tokens (holder, collection_id);

CREATE TABLE collections (
  collection_id      bigint PRIMARY KEY,
  brand              bytea NOT NULL,
  payout             bytea NOT NULL,
  price              numeric(78, 0) NOT NULL,
  max_supply         bigint NOT NULL,            -- 0 = unlimited, so for the next
  max_per_user       integer NOT NULL,
  is_active          boolean NOT NULL,
  charges            integer NOT NULL,
  requires_signature boolean NOT NULL,
  uri                text NOT NULL,
  minted             bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE items (
  item_id       numeric(78, 0) PRIMARY KEY,
  brand         bytea NOT NULL,
  payout        bytea NOT NULL,
  price         numeric(78, 0) NOT NULL,
  stock         bigint NOT NULL,
  sold          bigint NOT NULL,
  max_per_order integer NOT NULL,
  is_active     boolean NOT NULL,
  burns         boolean NOT NULL,
  metadata      bytea NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE deals (
  deal_id      bytea PRIMARY KEY,
  user_address bytea NOT NULL,
  business     bytea NOT NULL,
  amount       numeric(78, 0) NOT NULL,
  refund_after bigint NOT NULL,
  state        text NOT NULL,
  to_user      numeric(78, 0) NOT NULL,
  to_business  numeric(78, 0) NOT NULL,
  block_number bigint NOT NULL                   -- of its newest fact
) WITH (fillfactor = 70);

-- Results of purchase constraints for wallets, valid until they expire or are deleted. A row without an
-- outcome is an evaluation in progress; `ticket` belongs to the newest one. `position` is the
-- constraint's among those of its collection.
CREATE TABLE constraint_results (
  user_address  bytea NOT NULL,
  collection_id bigint NOT NULL,
  position      smallint NOT NULL,
  brand_id      bytea NOT NULL,
  kind          text NOT NULL,
  api_url       text,                            -- as it is configured, for external_api
  ticket        uuid NOT NULL,
  outcome       boolean,
  evaluated_at  timestamptz,
  expires_at    timestamptz NOT NULL,
  PRIMARY KEY (user_address, collection_id, position)
) WITH (fillfactor = 70);
CREATE INDEX constraint_results_by_url ON constraint_results (md5(api_url), brand_id) WHERE api_url IS NOT NULL;
CREATE INDEX constraint_results_by_kind ON constraint_results (kind);
CREATE INDEX constraint_results_by_age ON constraint_results (expires_at);
