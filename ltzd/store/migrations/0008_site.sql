-- The day on which a reward was earned, in the time zone that its brand had then. Leaderboards count the
-- reward in the week and month of that day, whenever its mint is mined. A time zone that the database
-- does not know counts as UTC here.
ALTER TABLE rewards ADD COLUMN earned_on date NOT NULL DEFAULT (now() AT TIME ZONE 'UTC')::date;
UPDATE rewards r
   SET earned_on = (r.created_at AT TIME ZONE zones.name)::date
  FROM (SELECT paid.brand_id, coalesce(known.name, 'UTC') AS name
          FROM (SELECT DISTINCT brand_id FROM rewards) AS paid
          LEFT JOIN brands b ON b.id = paid.brand_id
          LEFT JOIN pg_timezone_names known ON known.name = b.configuration ->> 'time_zone') AS zones
 WHERE zones.brand_id = r.brand_id;

-- The key of an HMAC that makes member ids on leaderboards, so that ids of two brands cannot be joined.
ALTER TABLE brands
  ADD COLUMN member_key bytea NOT NULL
  DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());

-- LTZ that wallets have from a brand, derived from its mined rewards in the transaction that moves the
-- cursor. `ltz` and `rewards` count what was earned, `bought` what was paid for; `starts` is the
-- period's first day, 1970-01-01 for all time. `bought` is kept only for all time.
CREATE TABLE earnings (
  brand_id bytea NOT NULL,
  period   text NOT NULL CHECK (period IN ('week', 'month', 'all')),
  starts   date NOT NULL,
  wallet   bytea NOT NULL CHECK (octet_length(wallet) = 20),
  ltz      bigint NOT NULL DEFAULT 0 CHECK (ltz >= 0),
  rewards  bigint NOT NULL DEFAULT 0 CHECK (rewards >= 0),
  bought   bigint NOT NULL DEFAULT 0 CHECK (bought >= 0),
  PRIMARY KEY (brand_id, period, starts, wallet)
) WITH (fillfactor = 70);
CREATE INDEX earnings_by_ltz ON earnings (brand_id, period, starts, ltz DESC, wallet) WHERE ltz > 0;
CREATE INDEX earnings_by_rewards ON earnings (brand_id, period, starts, rewards DESC, wallet) WHERE rewards > 0;

-- A wallet's check-ins at a brand's site: at most one a day in the brand's time zone.
CREATE TABLE checkins (
  brand_id   bytea NOT NULL,
  wallet     bytea NOT NULL CHECK (octet_length(wallet) = 20),
  day        date NOT NULL,
  streak     integer NOT NULL CHECK (streak > 0),
  ltz        bigint NOT NULL CHECK (ltz >= 0),
  reward_id  uuid UNIQUE,                       -- NULL for a check-in that earns nothing
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (brand_id, wallet, day),
  CHECK ((ltz = 0) = (reward_id IS NULL))
);

-- The current or last streak of a wallet, which includes `last_day`, and its longest streak.
CREATE TABLE streaks (
  brand_id bytea NOT NULL,
  wallet   bytea NOT NULL CHECK (octet_length(wallet) = 20),
  days     integer NOT NULL CHECK (days > 0),
  last_day date NOT NULL,
  best     integer NOT NULL CHECK (best >= days),
  PRIMARY KEY (brand_id, wallet)
) WITH (fillfactor = 70);

CREATE TABLE milestone_claims (
  brand_id   bytea NOT NULL,
  wallet     bytea NOT NULL CHECK (octet_length(wallet) = 20),
  days       integer NOT NULL CHECK (days > 0),
  ltz        bigint NOT NULL CHECK (ltz > 0),
  reward_id  uuid NOT NULL UNIQUE,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (brand_id, wallet, days)
);

-- The longest streak that a wallet reached in a period, with its check-ins.
CREATE TABLE streak_standings (
  brand_id bytea NOT NULL,
  period   text NOT NULL CHECK (period IN ('week', 'month', 'all')),
  starts   date NOT NULL,
  wallet   bytea NOT NULL CHECK (octet_length(wallet) = 20),
  days     integer NOT NULL CHECK (days > 0),
  PRIMARY KEY (brand_id, period, starts, wallet)
) WITH (fillfactor = 70);
CREATE INDEX streak_standings_by_days ON streak_standings (brand_id, period, starts, days DESC, wallet);

-- The number of ranked wallets. Check-ins are concurrent, so they are counted in slots.
CREATE TABLE standing_totals (
  brand_id bytea NOT NULL,
  board    text NOT NULL CHECK (board IN ('earnings', 'streaks')),
  period   text NOT NULL CHECK (period IN ('week', 'month', 'all')),
  starts   date NOT NULL,
  slot     smallint NOT NULL,
  ranked   bigint NOT NULL,
  PRIMARY KEY (brand_id, board, period, starts, slot)
) WITH (fillfactor = 50);

-- Members of brands' sites, as the site described them at the last log-in. `subject` is set once an
-- identity token has shown that the site's user owns the wallet.
CREATE TABLE site_members (
  brand_id     bytea NOT NULL,
  host         text NOT NULL,
  site_user_id bigint NOT NULL,
  username     text NOT NULL,
  email_key    text NOT NULL,                   -- the address in lower case
  user_id      uuid NOT NULL,
  wallet       bytea NOT NULL CHECK (octet_length(wallet) = 20),
  subject      text,
  linked_at    timestamptz,
  checked_in_on date,                           -- a change of wallet allows no second check-in
  seen_at      timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (brand_id, host, site_user_id),
  CHECK ((subject IS NULL) = (linked_at IS NULL))
);
CREATE INDEX site_members_by_wallet ON site_members (brand_id, wallet);
CREATE INDEX site_members_by_user ON site_members (user_id);

-- Perks that site sessions redeem: written before anything is signed. The claim or purchase on chain
-- carries the id in its reference, and its relay the id in its idempotency key, so that a process that
-- resumes after a crash redeems once.
CREATE TABLE site_redemptions (
  id                uuid PRIMARY KEY,
  brand_id          bytea NOT NULL,
  wallet            bytea NOT NULL CHECK (octet_length(wallet) = 20),
  perk_id           uuid NOT NULL,
  name              text NOT NULL,
  category          text NOT NULL,
  collection_id     numeric(78, 0),
  item_id           numeric(78, 0),
  price             numeric(78, 0) NOT NULL CHECK (price >= 0),   -- LTZ's smallest unit
  confirmation_code text NOT NULL UNIQUE,
  state             text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'failed')),
  failure           text,
  created_at        timestamptz NOT NULL DEFAULT now(),
  answered_at       timestamptz,
  CHECK ((collection_id IS NULL) <> (item_id IS NULL)),
  CHECK ((state = 'done') = (answered_at IS NOT NULL)),
  CHECK ((state = 'failed') = (failure IS NOT NULL))
);
CREATE INDEX site_redemptions_by_wallet ON site_redemptions (wallet, brand_id, perk_id, created_at);

-- Rewards that were mined before there were leaderboards.
INSERT INTO earnings (brand_id, period, starts, wallet, ltz, rewards, bought)
SELECT brand_id, period,
       CASE period WHEN 'all' THEN '1970-01-01' ELSE date_trunc(period, earned_on)::date END AS starts,
       wallet,
       coalesce(sum(ltz) FILTER (WHERE kind <> 2), 0),
       count(*) FILTER (WHERE kind <> 2),
       CASE period WHEN 'all' THEN coalesce(sum(ltz) FILTER (WHERE kind = 2), 0) ELSE 0 END
  FROM rewards
 CROSS JOIN unnest(ARRAY['week', 'month', 'all']) AS each (period)
 WHERE mint_block_hash IS NOT NULL AND (period = 'all' OR kind <> 2)
 GROUP BY 1, 2, 3, 4;
INSERT INTO standing_totals (brand_id, board, period, starts, slot, ranked)
SELECT brand_id, 'earnings', period, starts, 0, count(*)
  FROM earnings
 WHERE rewards > 0
 GROUP BY 1, 3, 4;
