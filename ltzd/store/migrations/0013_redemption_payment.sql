-- The fact on chain that paid a site redemption. `payment_lost_at` is set while a reorg has undone that
-- fact and no other fact pays. A redemption whose payment is finally lost is reversed.
ALTER TABLE site_redemptions
  DROP CONSTRAINT site_redemptions_state_check,
  DROP CONSTRAINT site_redemptions_check1,
  ADD COLUMN paid_block_hash       bytea,
  ADD COLUMN paid_log_index        integer,
  ADD COLUMN paid_block_number     bigint,
  ADD COLUMN paid_transaction_hash bytea,
  ADD COLUMN payment_lost_at       timestamptz,
  ADD COLUMN reversed_at           timestamptz,
  ADD CONSTRAINT site_redemptions_state_check CHECK (state IN ('open', 'done', 'failed', 'reversed')),
  ADD CONSTRAINT site_redemptions_answered CHECK ((state IN ('done', 'reversed')) = (answered_at IS NOT NULL)),
  ADD CONSTRAINT site_redemptions_reversed CHECK ((state = 'reversed') = (reversed_at IS NOT NULL)),
  ADD CONSTRAINT site_redemptions_paid CHECK (
    num_nulls(paid_block_hash, paid_log_index, paid_block_number, paid_transaction_hash) IN (0, 4)),
  ADD CONSTRAINT site_redemptions_paid_once CHECK (paid_block_hash IS NULL OR state IN ('done', 'reversed')),
  ADD CONSTRAINT site_redemptions_lost CHECK (payment_lost_at IS NULL OR paid_block_hash IS NOT NULL);

-- The facts that pay a redemption: a claim of its collection or a purchase of one of its item, by its
-- wallet, with its reference, at no less than its price. The redemption's own relay also pays if the
-- brand has lowered the price since.
CREATE VIEW site_redemption_payments AS
WITH facts AS (
  SELECT s.id AS redemption_id, s.price AS agreed, s.wallet,
         c.block_hash, c.log_index, c.block_number, c.transaction_hash, c.price AS paid
    FROM site_redemptions s
    JOIN perk_claims c ON c.user_address = s.wallet AND c.collection_id = s.collection_id
                      AND c.reference = uuid_send(s.id) || decode(repeat('00', 16), 'hex')
   UNION ALL
  SELECT s.id, s.price, s.wallet, p.block_hash, p.log_index, p.block_number, p.transaction_hash, p.paid
    FROM site_redemptions s
    JOIN purchases p ON p.buyer = s.wallet AND p.item_id = s.item_id AND p.quantity = 1
                    AND p.reference = uuid_send(s.id) || decode(repeat('00', 16), 'hex')
)
SELECT redemption_id, block_hash, log_index, block_number, transaction_hash, paid
  FROM facts
 WHERE paid >= agreed
    OR EXISTS (SELECT FROM attempts a
                 JOIN relays r ON r.transaction_id = a.transaction_id
                WHERE a.hash = facts.transaction_hash AND r.user_address = facts.wallet
                  AND r.fingerprint = sha256(uuid_send(facts.redemption_id)));

UPDATE site_redemptions s
   SET paid_block_hash = p.block_hash, paid_log_index = p.log_index,
       paid_block_number = p.block_number, paid_transaction_hash = p.transaction_hash
  FROM (SELECT DISTINCT ON (redemption_id) *
          FROM site_redemption_payments
         ORDER BY redemption_id, block_number, log_index) AS p
 WHERE p.redemption_id = s.id AND s.state = 'done';

CREATE UNIQUE INDEX site_redemptions_by_payment ON site_redemptions (paid_block_hash, paid_log_index)
 WHERE paid_block_hash IS NOT NULL;
CREATE INDEX site_redemptions_by_paid_block ON site_redemptions (paid_block_number)
 WHERE state = 'done' AND paid_block_number IS NOT NULL;
CREATE INDEX site_redemptions_lost ON site_redemptions (payment_lost_at)
 WHERE state = 'done' AND payment_lost_at IS NOT NULL;

ALTER TABLE webhooks
  DROP CONSTRAINT webhooks_kind_check,
  ADD CONSTRAINT webhooks_kind_check
  CHECK (kind IN ('ltz_distributed', 'ltz_reverted', 'payment_reversed', 'redemption_reversed'));

-- The account of the chat platform for which a claim was admitted, so that an account that moves from
-- wallet to wallet satisfies no more claims than one wallet may have. `claims` is the claim's number
-- among the wallet's claims of the collection.
CREATE TABLE chat_claims (
  collection_id bigint NOT NULL,
  account       text NOT NULL,
  wallet        bytea NOT NULL CHECK (octet_length(wallet) = 20),
  claims        integer NOT NULL CHECK (claims > 0),
  reserved_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (collection_id, account, wallet, claims)
);
