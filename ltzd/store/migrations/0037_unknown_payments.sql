-- Mints of payments that this database does not know, since their rows were lost with a server. The index writes
-- a row when it reads such a mint; the payment takes it when its session is reported again.
CREATE TABLE unknown_payments (
  reward_id uuid PRIMARY KEY,
  reference bytea NOT NULL CHECK (octet_length(reference) = 32)
);
