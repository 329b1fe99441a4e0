-- A link lets one member of a brand's site spend from an owner's wallet. It is made with a code and has
-- an expiry and a daily allowance in whole LTZ. `subject` is the owner's at the identity provider. A
-- link is active while it has not expired, the member's row names it, and the member still has the
-- link's user and wallet. Rows are kept: redemptions refer to them, and a member who was linked to one
-- owner's wallet cannot be linked to another's.
CREATE TABLE site_links (
  id              uuid PRIMARY KEY,
  brand_id        bytea NOT NULL,
  host            text NOT NULL,
  site_user_id    bigint NOT NULL,
  user_id         uuid NOT NULL,
  subject         text NOT NULL,
  wallet          bytea NOT NULL CHECK (octet_length(wallet) = 20),
  daily_allowance bigint NOT NULL CHECK (daily_allowance >= 0),
  linked_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at      timestamptz NOT NULL
);
CREATE INDEX site_links_by_member ON site_links (brand_id, host, site_user_id);
CREATE INDEX site_links_by_subject ON site_links (subject);

-- Codes that were shown to owners and are not used yet. `code_hash` is an HMAC of brand, host and code
-- under the master key, so a reader of the database cannot try codes. `wallets` are the owner's. A link
-- gives the first of them, or the member's own wallet if it is among them.
CREATE TABLE site_link_codes (
  code_hash       bytea PRIMARY KEY CHECK (octet_length(code_hash) = 32),
  brand_id        bytea NOT NULL,
  host            text NOT NULL,
  subject         text NOT NULL,
  wallets         bytea[] NOT NULL CHECK (cardinality(wallets) > 0),
  daily_allowance bigint NOT NULL CHECK (daily_allowance >= 0),
  expires_at      timestamptz NOT NULL
);
CREATE INDEX site_link_codes_by_subject ON site_link_codes (subject, host);
CREATE INDEX site_link_codes_by_end ON site_link_codes (expires_at);

-- The number of wrong codes entered since `wrong_since`.
ALTER TABLE site_members
  ADD COLUMN link_id uuid REFERENCES site_links,
  ADD COLUMN wrong_codes integer NOT NULL DEFAULT 0,
  ADD COLUMN wrong_since timestamptz;
CREATE INDEX site_members_by_link ON site_members (link_id) WHERE link_id IS NOT NULL;

CREATE VIEW live_site_links AS
SELECT l.*, m.username
  FROM site_links l
  JOIN site_members m ON m.link_id = l.id AND m.user_id = l.user_id AND m.wallet = l.wallet
 WHERE l.expires_at > clock_timestamp();

-- The member who claimed, and the part of the reward that he earned himself: other members of the same
-- wallet may have built the streak. Earlier claims have no such part.
ALTER TABLE checkins
  ADD COLUMN host text,
  ADD COLUMN site_user_id bigint,
  ADD COLUMN own_streak integer CHECK (own_streak BETWEEN 1 AND streak),
  ADD COLUMN own_ltz bigint NOT NULL DEFAULT 0 CHECK (own_ltz BETWEEN 0 AND ltz),
  ADD CHECK ((host IS NULL) = (site_user_id IS NULL) AND (host IS NULL) = (own_streak IS NULL));
ALTER TABLE milestone_claims
  ADD COLUMN host text,
  ADD COLUMN site_user_id bigint,
  ADD COLUMN own_ltz bigint NOT NULL DEFAULT 0 CHECK (own_ltz BETWEEN 0 AND ltz),
  ADD CHECK ((host IS NULL) = (site_user_id IS NULL));

-- The sources that pay a redemption, in LTZ's smallest unit: LTZ that the member earned, other LTZ that
-- the brand gave or sold to the wallet, and the link's allowance of `link_day`, a day in UTC. A row of
-- an earlier version counts as paid from the LTZ that the brand gave.
ALTER TABLE site_redemptions
  ADD COLUMN host text,
  ADD COLUMN site_user_id bigint,
  ADD COLUMN from_earned numeric(78, 0) CHECK (from_earned >= 0),
  ADD COLUMN from_given numeric(78, 0) CHECK (from_given >= 0),
  ADD COLUMN from_linked numeric(78, 0) CHECK (from_linked >= 0),
  ADD COLUMN link_id uuid REFERENCES site_links,
  ADD COLUMN link_day date,
  ADD CHECK ((link_id IS NULL) = (link_day IS NULL)),
  ADD CHECK (from_earned + from_given + from_linked = price);
CREATE INDEX site_redemptions_by_link ON site_redemptions (link_id, link_day) WHERE link_id IS NOT NULL;

-- Linked members may have spent more than their brands gave: the excess was other LTZ.
UPDATE site_redemptions s
   SET from_earned = 0, from_given = paid.given, from_linked = s.price - paid.given
  FROM (SELECT id, greatest(0, least(price, total - before)) AS given
          FROM (SELECT r.id, r.price,
                       coalesce(e.ltz + e.bought, 0) * 1000000000000000000::numeric AS total,
                       coalesce(sum(r.price) OVER (PARTITION BY r.brand_id, r.wallet
                                                   ORDER BY r.created_at, r.id
                                                   ROWS BETWEEN UNBOUNDED PRECEDING
                                                            AND 1 PRECEDING), 0) AS before
                  FROM site_redemptions r
                  LEFT JOIN earnings e ON e.brand_id = r.brand_id AND e.wallet = r.wallet
                                      AND e.period = 'all' AND e.starts = '1970-01-01'
                 WHERE r.state <> 'failed') AS spent) AS paid
 WHERE s.id = paid.id;

-- The member of a redemption, where only one member can have begun it: only he gets its code.
UPDATE site_redemptions s
   SET host = m.host, site_user_id = m.site_user_id
  FROM (SELECT brand_id, wallet, min(host) AS host, min(site_user_id) AS site_user_id
          FROM site_members
         GROUP BY brand_id, wallet
        HAVING count(*) = 1) AS m
 WHERE s.brand_id = m.brand_id AND s.wallet = m.wallet;

-- A link by an identity token gave the whole wallet without an expiry. It ends here, and its member has
-- the wallet of the e-mail address again. Its row is kept, so that only the same owner can link him again.
INSERT INTO site_links (id, brand_id, host, site_user_id, user_id, subject, wallet, daily_allowance,
                        linked_at, expires_at)
SELECT gen_random_uuid(), brand_id, host, site_user_id, user_id, subject, wallet, 0, linked_at, now()
  FROM site_members
 WHERE subject IS NOT NULL;
UPDATE site_members m
   SET subject = NULL, linked_at = NULL, wallet = u.wallet
  FROM users u
 WHERE u.id = m.user_id AND m.subject IS NOT NULL;
