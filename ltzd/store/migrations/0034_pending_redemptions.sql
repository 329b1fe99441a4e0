-- A member's pending redemptions are found whatever wallet the member has now: a link or a proof may have given the
-- member another one since.
CREATE INDEX site_redemptions_pending ON site_redemptions (brand_id, host, site_user_id, perk_id)
 WHERE state = 'open' OR payment_lost_at IS NOT NULL;
