-- What a person asked of a transaction in flight (`ltzd tx speed-up`, `ltzd tx cancel`). The lane that holds
-- the wallet carries it out, and writes the outcome in the commit that stores the attempt's signed bytes.
CREATE TABLE transaction_requests (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  transaction_id bigint NOT NULL REFERENCES transactions,
  action         text NOT NULL CHECK (action IN ('speed_up', 'cancel')),
  requested_at   timestamptz NOT NULL DEFAULT now(),
  expires_at     timestamptz,                    -- from then on no lane carries it out; NULL: never
  handled_at     timestamptz,
  outcome        text,                           -- 'done', or why not
  attempt        bytea REFERENCES attempts,      -- the attempt that did it
  CHECK ((handled_at IS NULL) = (outcome IS NULL)),
  CHECK ((attempt IS NOT NULL) = (coalesce(outcome, '') = 'done'))
);
-- A command that is given twice joins the open request.
CREATE UNIQUE INDEX transaction_requests_open ON transaction_requests (transaction_id, action)
 WHERE handled_at IS NULL;
CREATE INDEX transaction_requests_by_transaction ON transaction_requests (transaction_id);
