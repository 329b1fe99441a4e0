-- The gas that relay wallets pay, by UTC day: of each identity, and of everybody under the empty name.
-- Many processes add to everybody's sum at once, so each connection has a slot of its own; slot 0 is
-- the row that writers lock while the day's total is nearly spent. A slot may be below zero: gas that
-- was reserved in one slot is released in another.
CREATE TABLE gas_spent (
  day      date NOT NULL,
  identity text NOT NULL,
  slot     smallint NOT NULL,
  wei      numeric(78, 0) NOT NULL,
  PRIMARY KEY (day, identity, slot)
) WITH (fillfactor = 50);

-- The part of a relay that is counted there now: its maximum cost, and its actual cost once it is mined.
-- Without an identity it counts only for everybody; without a day it is not counted.
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

-- A brand's pregenerations of a day are counted with its other limits, those that it has signed apart
-- from those that anybody sends in its name.
ALTER TABLE brand_usage
  DROP CONSTRAINT brand_usage_kind_check,
  ADD CONSTRAINT brand_usage_kind_check CHECK (kind IN ('ltz_a_day', 'wallets_an_hour', 'pregenerations_a_day', 'signed_pregenerations_a_day'));
