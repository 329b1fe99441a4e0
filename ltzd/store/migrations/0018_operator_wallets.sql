-- The operator's wallets as people want them: a row says what a lane should do, its `lanes` row says what
-- the lane does. A draining wallet signs no new work and finishes; a retired one signs nothing at all and
-- is watched until everything that it signed is final.
CREATE TABLE operator_wallets (
  chain_id       bigint NOT NULL,
  wallet         bytea NOT NULL CHECK (octet_length(wallet) = 20),
  kind           text NOT NULL CHECK (kind IN ('mint', 'relay')),
  state          text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'draining', 'retired')),
  reason         text,                           -- why it drains or is retired, as a person gave it
  signer         jsonb,                          -- where its key is, never the key; NULL: the settings name it
  paused_at      timestamptz,                    -- `ltzd lane pause`
  pause_reason   text,
  added_at       timestamptz NOT NULL DEFAULT now(),
  state_since    timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (chain_id, wallet)
);
-- Wallets of earlier versions that still have work: the settings enter those that they name at the next start,
-- and nobody needs the others.
INSERT INTO operator_wallets (chain_id, wallet, kind)
SELECT chain_id, wallet, kind
  FROM lanes
 WHERE EXISTS (SELECT FROM transactions t
                WHERE t.chain_id = lanes.chain_id AND t.wallet = lanes.wallet
                  AND t.state IN ('signed', 'published', 'mined'));
