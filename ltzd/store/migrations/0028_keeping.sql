-- How long data is kept (decision 0036). An event whose address was erased keeps its user, type, reward and time.
ALTER TABLE events ALTER COLUMN email DROP NOT NULL;

-- The key of the hashes that stand for erased addresses, sealed with the master key. At most one row; the first
-- erasure inserts it.
CREATE TABLE erasure_keys (
  name    text PRIMARY KEY CHECK (name = 'addresses'),
  key_id  text NOT NULL,
  sealed  bytea NOT NULL
);

-- The erasures that a person asked for, one row a user, without the address: a restored backup needs them again.
CREATE TABLE erasures (
  user_id   uuid PRIMARY KEY,
  erased_at timestamptz NOT NULL DEFAULT now()
);

-- Each brand's event types that have claims, found by key, one after the other.
CREATE VIEW claimed_event_types AS
WITH RECURSIVE pairs (brand_id, event_type) AS (
  (SELECT brand_id, event_type FROM event_claims ORDER BY brand_id, event_type LIMIT 1)
   UNION ALL
  SELECT following.brand_id, following.event_type
    FROM pairs
   CROSS JOIN LATERAL (
         SELECT c.brand_id, c.event_type
           FROM event_claims c
          WHERE (c.brand_id, c.event_type) > (pairs.brand_id, pairs.event_type)
          ORDER BY c.brand_id, c.event_type
          LIMIT 1) AS following
)
SELECT brand_id, event_type FROM pairs;

-- How far a retention rule has come. Rows before it are as the rule leaves them; they may be looked at again.
CREATE TABLE retention_progress (
  rule     text NOT NULL,
  brand_id bytea NOT NULL,            -- empty for a rule that is not a brand's
  done_to  timestamptz,
  last_key text,
  PRIMARY KEY (rule, brand_id)
);
