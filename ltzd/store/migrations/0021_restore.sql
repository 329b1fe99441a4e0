-- The history of the PostgreSQL server on which a lane last signed (`restore.database_history`): another one
-- means that a replica was promoted, or a backup restored, which may lack the last commits.
-- The nonces below `resumed_nonce` are accounted for: a person has adopted the wallet, or restored the lane, at
-- this nonce. The lane signs nothing new before the wallet has used all of them.
-- `foreign_use` is the proof that something else signs with the wallet's key; the lane signs nothing until a
-- person clears it.
ALTER TABLE lanes
  ADD COLUMN timeline      text,
  ADD COLUMN resumed_nonce bigint NOT NULL DEFAULT 0,
  ADD COLUMN foreign_use   text;

-- Differences between books and chain that a person has explained, so that `ltzd books` counts them no more.
CREATE TABLE books_acknowledgements (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind            text NOT NULL,
  subject         text NOT NULL,
  reason          text NOT NULL,
  acknowledged_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (kind, subject)
);
