-- The gas that relay wallets pay, by UTC day: for each identity, and in total under the empty name. Many
-- processes add to the total concurrently, so each connection has a slot of its own. Slot 0 is the row
-- that writers lock while the day's total is nearly spent. A slot may be below zero: gas that was
-- reserved in one slot can be released in another.
CREATE TABLE gas_spent (
  day      date NOT NULL,
  identity text NOT NULL,
  slot     smallint NOT NULL,
  wei      numeric(78, 0) NOT NULL,
  PRIMARY KEY (day, identity, slot)
) WITH (fillfactor = 50);

-- The amount that gas_spent holds for a relay: its maximum cost, and its actual cost once it is mined.
-- Without an identity it counts only in the total. Without a day it is not counted.
ALTER TABLE relays
  ADD COLUMN identity text,
  ADD COLUMN gas_day  date,
  ADD COLUMN gas_wei  numeric(78, 0),
  ADD CHECK ((gas_day IS NULL) = (gas_wei IS NULL));

-- Today's relays count for their wallet, since their identity is unknown.
UPDATE relays r
   SET identity = CASE WHEN r.brand_id IS NULL THEN '0x' || encode(r.user_address, 'hex') END,
       gas_day = (now() AT TIME ZONE 'UTC')::date,
       gas_wei = coalesce((SELECT t.gas_used::numeric * t.effective_gas_price
                             FROM transactions t
                            WHERE t.id = r.transaction_id), r.worst_wei)
 WHERE r.state <> 'failed' AND r.created_at >= date_trunc('day', now(), 'UTC');
INSERT INTO gas_spent (day, identity, slot, wei)
SELECT gas_day, account, 0, sum(gas_wei)
  FROM relays
 CROSS JOIN LATERAL unnest(ARRAY['', identity]) AS counted (account)
 WHERE gas_day IS NOT NULL AND account IS NOT NULL
 GROUP BY gas_day, account;

-- A brand's pregenerations of a day are counted with its other limits, separately for requests that the
-- brand signed and for unsigned ones.
ALTER TABLE brand_usage
  DROP CONSTRAINT brand_usage_kind_check,
  ADD CONSTRAINT brand_usage_kind_check CHECK (kind IN ('ltz_a_day', 'wallets_an_hour', 'pregenerations_a_day', 'signed_pregenerations_a_day'));
