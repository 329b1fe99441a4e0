-- What a person asked of a transaction in flight (`ltzd tx speed-up`, `ltzd tx cancel`). The lane that holds
-- the wallet carries it out, and writes the outcome.
CREATE TABLE transaction_requests (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  transaction_id bigint NOT NULL REFERENCES transactions,
  action         text NOT NULL CHECK (action IN ('speed_up', 'cancel')),
  requested_at   timestamptz NOT NULL DEFAULT now(),
  handled_at     timestamptz,
  is_done        boolean,
  outcome        text,
  CHECK ((handled_at IS NULL) = (outcome IS NULL)),
  CHECK ((handled_at IS NULL) = (is_done IS NULL))
);
CREATE INDEX transaction_requests_open ON transaction_requests (transaction_id) WHERE handled_at IS NULL;
