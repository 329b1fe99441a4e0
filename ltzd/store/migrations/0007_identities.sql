-- Wallets of accounts at OAuth providers, kept for their owners before they log in. Once a pair is
-- here its wallet never changes; who asks for it later, from any brand, gets the same.
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

-- Each request that was answered with a wallet: who asked, and what he wanted kept with it.
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

-- Users of an operator without an identity provider of the first kind: a wallet each, whose key lies
-- here sealed with the master key. `subject` is a name of our own.
CREATE TABLE local_users (
  subject    text PRIMARY KEY,
  wallet     bytea NOT NULL UNIQUE CHECK (octet_length(wallet) = 20),
  key_id     text NOT NULL,
  sealed     bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- What leads to a local user: an e-mail address (kind 'email'), an account at an OAuth provider, or a
-- log-in at the token issuer ('subject'). An 'owned' row says whose user he is, once a token has told.
-- `verified` says that a token vouched for it; only such rows ever join two users' names.
CREATE TABLE local_accounts (
  kind       text NOT NULL,
  name       text NOT NULL,                    -- the address in lower case, or the account's id
  subject    text NOT NULL REFERENCES local_users,
  verified   boolean NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (kind, name)
);
CREATE INDEX local_accounts_by_subject ON local_accounts (subject);
