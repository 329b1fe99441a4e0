-- Wallets of accounts at OAuth providers, created before their owners log in. The wallet of an account
-- never changes; later requests, from any brand, get the same one.
CREATE TABLE pregenerations (
  oauth_provider   text NOT NULL,
  oauth_user_id    text NOT NULL,
  identity_subject text NOT NULL,
  wallet           bytea NOT NULL CHECK (octet_length(wallet) = 20),
  oauth_username   text,
  created_at       timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (oauth_provider, oauth_user_id)
);
CREATE INDEX pregenerations_by_wallet ON pregenerations (wallet);

-- Each request that was answered with a wallet: its brand and its metadata.
CREATE TABLE pregeneration_requests (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  brand_id       bytea NOT NULL CHECK (octet_length(brand_id) = 20),
  oauth_provider text NOT NULL,
  oauth_user_id  text NOT NULL,
  created_new    boolean NOT NULL,
  metadata       jsonb,
  created_at     timestamptz NOT NULL DEFAULT now(),
  FOREIGN KEY (oauth_provider, oauth_user_id) REFERENCES pregenerations
);
CREATE INDEX pregeneration_requests_by_brand ON pregeneration_requests (brand_id, created_at);

-- Users of an operator that keeps wallet keys itself: one wallet each, whose key is sealed with the
-- master key. ltzd chooses `subject`.
CREATE TABLE local_users (
  subject    text PRIMARY KEY,
  wallet     bytea NOT NULL UNIQUE CHECK (octet_length(wallet) = 20),
  key_id     text NOT NULL,
  sealed     bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- The names of custodial users: an e-mail address (kind 'email'), an account at an OAuth provider,
-- or a log-in at the token issuer ('subject'). An 'owned' row names the user's owner, once a token proves
-- it. `verified` means that a token verified the name. Only verified names join two users.
CREATE TABLE local_accounts (
  kind       text NOT NULL,
  name       text NOT NULL,                    -- the address in lower case, or the account's id
  subject    text NOT NULL REFERENCES local_users,
  verified   boolean NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (kind, name)
);
CREATE INDEX local_accounts_by_subject ON local_accounts (subject);
