-- Renames only: tables, columns, views, indexes and constraints get the names that the program uses.
-- A rename changes the catalogue and no row, so it takes the same time on a large database. Views
-- follow the tables and columns that they read. Processes of the version before this one fail on the
-- new names, so they must be stopped first (docs/decisions/0028).

-- The claims that events make, in contrast to perk_claims, chat_claims and milestone_claims.
ALTER TABLE claims RENAME TO event_claims;
ALTER TABLE event_claims RENAME CONSTRAINT claims_pkey TO event_claims_pkey;
ALTER TABLE claim_totals RENAME TO event_claim_totals;
ALTER TABLE event_claim_totals RENAME CONSTRAINT claim_totals_pkey TO event_claim_totals_pkey;

-- Users whose wallet keys ltzd keeps.
ALTER TABLE local_users RENAME TO custodial_users;
ALTER TABLE custodial_users RENAME CONSTRAINT local_users_pkey TO custodial_users_pkey;
ALTER TABLE custodial_users RENAME CONSTRAINT local_users_wallet_key TO custodial_users_wallet_key;
ALTER TABLE custodial_users RENAME CONSTRAINT local_users_wallet_check TO custodial_users_wallet_check;
ALTER TABLE local_accounts RENAME TO custodial_accounts;
ALTER TABLE custodial_accounts RENAME CONSTRAINT local_accounts_pkey TO custodial_accounts_pkey;
ALTER TABLE custodial_accounts RENAME CONSTRAINT local_accounts_subject_fkey TO custodial_accounts_subject_fkey;
ALTER INDEX local_accounts_by_subject RENAME TO custodial_accounts_by_subject;

ALTER TABLE checkins RENAME TO check_ins;
ALTER TABLE check_ins RENAME CONSTRAINT checkins_pkey TO check_ins_pkey;
ALTER TABLE check_ins RENAME CONSTRAINT checkins_reward_id_key TO check_ins_reward_id_key;
ALTER TABLE check_ins RENAME CONSTRAINT checkins_check TO check_ins_check;
ALTER TABLE check_ins RENAME CONSTRAINT checkins_check1 TO check_ins_check1;
ALTER TABLE check_ins RENAME CONSTRAINT checkins_check2 TO check_ins_check2;
ALTER TABLE check_ins RENAME CONSTRAINT checkins_check3 TO check_ins_check3;
ALTER TABLE check_ins RENAME CONSTRAINT checkins_ltz_check TO check_ins_ltz_check;
ALTER TABLE check_ins RENAME CONSTRAINT checkins_streak_check TO check_ins_streak_check;
ALTER TABLE check_ins RENAME CONSTRAINT checkins_wallet_check TO check_ins_wallet_check;

-- The longest streak of each wallet in a period, and the number of wallets on each leaderboard.
ALTER TABLE streak_standings RENAME TO leaderboard_streaks;
ALTER TABLE leaderboard_streaks RENAME CONSTRAINT streak_standings_pkey TO leaderboard_streaks_pkey;
ALTER TABLE leaderboard_streaks RENAME CONSTRAINT streak_standings_days_check TO leaderboard_streaks_days_check;
ALTER TABLE leaderboard_streaks RENAME CONSTRAINT streak_standings_period_check TO leaderboard_streaks_period_check;
ALTER TABLE leaderboard_streaks RENAME CONSTRAINT streak_standings_wallet_check TO leaderboard_streaks_wallet_check;
ALTER INDEX streak_standings_by_days RENAME TO leaderboard_streaks_by_days;
ALTER TABLE standing_totals RENAME TO leaderboard_totals;
ALTER TABLE leaderboard_totals RENAME CONSTRAINT standing_totals_pkey TO leaderboard_totals_pkey;
ALTER TABLE leaderboard_totals RENAME CONSTRAINT standing_totals_board_check TO leaderboard_totals_board_check;
ALTER TABLE leaderboard_totals RENAME CONSTRAINT standing_totals_period_check TO leaderboard_totals_period_check;

ALTER VIEW live_site_links RENAME TO active_site_links;
ALTER VIEW watched_transactions RENAME TO open_transactions;

-- The indexer's cursor: the last block whose facts are in the database.
ALTER TABLE chains RENAME COLUMN number TO cursor_number;
ALTER TABLE chains RENAME COLUMN hash TO cursor_hash;

-- One such relay of a user is in flight at a time; the most that a relay may cost.
ALTER TABLE relays RENAME COLUMN takes_turns TO serialized_per_user;
ALTER TABLE relays RENAME COLUMN worst_wei TO max_cost_wei;
ALTER TABLE relays RENAME CONSTRAINT relays_counted TO relays_window_start_check;

ALTER TABLE retired_secrets RENAME COLUMN until TO expires_at;

-- When the user was told the confirmation code.
ALTER TABLE site_redemptions RENAME COLUMN answered_at TO completed_at;
ALTER TABLE site_redemptions RENAME CONSTRAINT site_redemptions_answered TO site_redemptions_completed;

ALTER TABLE site_members RENAME COLUMN wrong_codes TO failed_code_count;
ALTER TABLE site_members RENAME COLUMN wrong_since TO failed_codes_since;

ALTER INDEX rewards_in_turn RENAME TO rewards_mintable_by_brand;
ALTER INDEX rewards_queued_payments RENAME TO rewards_mintable_payments;
ALTER INDEX webhooks_once RENAME TO webhooks_subject_kind_key;
ALTER INDEX site_link_codes_by_end RENAME TO site_link_codes_by_expiry;

-- The one change of rows: a few for each brand and day, kept for three days.
ALTER TABLE brand_usage DROP CONSTRAINT brand_usage_kind_check;
UPDATE brand_usage
   SET kind = CASE kind WHEN 'ltz_a_day' THEN 'ltz_per_day'
                        WHEN 'wallets_an_hour' THEN 'wallets_per_hour'
                        WHEN 'pregenerations_a_day' THEN 'pregenerations_per_day'
                        WHEN 'signed_pregenerations_a_day' THEN 'signed_pregenerations_per_day' END;
ALTER TABLE brand_usage
  ADD CONSTRAINT brand_usage_kind_check CHECK (kind IN ('ltz_per_day', 'wallets_per_hour', 'pregenerations_per_day', 'signed_pregenerations_per_day'));
