-- The subject of the person whose verified token was the first to list the address. Later grants to the
-- address go to this person's wallet, and to no other person's.
ALTER TABLE users ADD COLUMN proven_by text;

-- Former wallets of an address. Earlier grants stay there, and the wallet still belongs to the user.
CREATE TABLE former_wallets (
  wallet  bytea NOT NULL CHECK (octet_length(wallet) = 20),
  user_id uuid NOT NULL,
  left_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (wallet, user_id)
);

-- The users of each wallet, present and former.
CREATE VIEW wallet_users AS
SELECT wallet, id, email_key, created_at FROM users
 UNION ALL
SELECT f.wallet, u.id, u.email_key, u.created_at
  FROM former_wallets f
  JOIN users u ON u.id = f.user_id
 WHERE f.wallet <> u.wallet;
