-- The person whose verified token was the first to list the address, as whoever keeps the wallets calls
-- him. What is given to the address follows him from wallet to wallet, and nobody else.
ALTER TABLE users ADD COLUMN proven_by text;

-- Wallets that an address has left: what was given to it there stays there, and is still that user's.
CREATE TABLE former_wallets (
  wallet  bytea NOT NULL CHECK (octet_length(wallet) = 20),
  user_id uuid NOT NULL,
  left_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (wallet, user_id)
);

-- Whose a wallet is, or was.
CREATE VIEW wallet_users AS
SELECT wallet, id, email_key, created_at FROM users
 UNION ALL
SELECT f.wallet, u.id, u.email_key, u.created_at
  FROM former_wallets f
  JOIN users u ON u.id = f.user_id
 WHERE f.wallet <> u.wallet;
