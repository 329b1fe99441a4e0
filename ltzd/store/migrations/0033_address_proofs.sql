-- Addresses that verified tokens have listed before an event created their user: whose proof was the first
-- (decision 0019). The user that the address gets counts as proven from the start. `shown_at` is when the
-- person last showed the address, to the day.
CREATE TABLE address_proofs (
  email_key text PRIMARY KEY,               -- the address in lower case
  person    text NOT NULL,
  shown_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX address_proofs_by_age ON address_proofs (shown_at);
