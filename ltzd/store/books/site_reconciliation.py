"""The checks of sites and their members, run by `reconciliation.reconcile_all`."""

from collections.abc import Mapping, Sequence

import msgspec

from ltzd.store.site_plugin.redemption_payments import OF_INDEXED_CONTRACT


class Check(msgspec.Struct, frozen=True):
    """`sql` takes a brand (NULL for all rows) and the number of rows to return."""

    kind: str
    meaning: str
    sides: tuple[str, str]
    sql: str


EARNING_PERIODS: Mapping[str, str] = {
    "week": "date_trunc('week', earned_on::timestamp)::date",
    "month": "date_trunc('month', earned_on::timestamp)::date",
    "all": "'1970-01-01'::date",
}
"""The first day of each period of a reward."""


def owed_earnings(period: str) -> str:
    """A query of the earnings of this period that the minted rewards come to; $1 is a brand."""
    return f"""
          SELECT brand_id, wallet, '{period}' AS period, {EARNING_PERIODS[period]} AS starts,
                 coalesce(sum(ltz) FILTER (WHERE kind <> 2), 0)::bigint AS ltz,
                 count(*) FILTER (WHERE kind <> 2) AS rewards,
                 coalesce(sum(ltz) FILTER (WHERE kind = 2), 0)::bigint AS bought
            FROM rewards
           WHERE mint_block_hash IS NOT NULL AND (kind <> 2 OR '{period}' = 'all')
             AND ($1::bytea IS NULL OR brand_id = $1)
           GROUP BY 1, 2, 4"""  # noqa: S608


SITE_CHECKS: Sequence[Check] = (
    Check(
        "site_claim_and_reward_differ",
        "check-ins and milestones without a reward, or whose reward is another one",
        ("claim", "reward"),
        """
        SELECT c.reward_id::text AS id, count(*) OVER () AS total,
               json_build_object('kind', c.kind, 'ltz', c.ltz,
                                 'wallet', '0x' || encode(c.wallet, 'hex'),
                                 'brandId', '0x' || encode(c.brand_id, 'hex'))::text AS one,
               CASE WHEN r.id IS NOT NULL THEN
                 json_build_object('kind', r.kind, 'ltz', r.ltz,
                                   'wallet', '0x' || encode(r.wallet, 'hex'),
                                   'brandId', '0x' || encode(r.brand_id, 'hex'))::text END AS other
          FROM (SELECT 3 AS kind, brand_id, wallet, ltz, reward_id, created_at
                  FROM check_ins
                 WHERE reward_id IS NOT NULL
                 UNION ALL
                SELECT 4, brand_id, wallet, ltz, reward_id, created_at
                  FROM milestone_claims) AS c
          LEFT JOIN rewards r ON r.id = c.reward_id
         WHERE (r.kind, r.brand_id, r.wallet, r.ltz)
                 IS DISTINCT FROM (c.kind::smallint, c.brand_id, c.wallet, c.ltz)
           AND ($1::bytea IS NULL OR $1 IN (c.brand_id, r.brand_id))
         ORDER BY c.created_at, c.reward_id
         LIMIT $2
        """,
    ),
    Check(
        "reward_without_site_claim",
        "rewards for check-ins and milestones that do not exist",
        ("reward", "claim"),
        """
        SELECT r.id::text, count(*) OVER () AS total,
               json_build_object('kind', r.kind, 'ltz', r.ltz,
                                 'wallet', '0x' || encode(r.wallet, 'hex'),
                                 'brandId', '0x' || encode(r.brand_id, 'hex'))::text AS one,
               NULL AS other
          FROM rewards r
         WHERE r.kind IN (3, 4)
           AND ($1::bytea IS NULL OR r.brand_id = $1)
           AND NOT EXISTS (SELECT FROM check_ins c WHERE c.reward_id = r.id)
           AND NOT EXISTS (SELECT FROM milestone_claims m WHERE m.reward_id = r.id)
         ORDER BY r.position
         LIMIT $2
        """,
    ),
    Check(
        "earnings_and_rewards_differ",
        "wallets whose earnings at a brand are not the sum of its minted rewards",
        ("earnings", "rewards"),
        f"""
        WITH kept AS (
          SELECT brand_id, wallet, period, starts, ltz, rewards, bought FROM earnings
           WHERE $1::bytea IS NULL OR brand_id = $1
        ), owed AS (
          {" UNION ALL ".join(map(owed_earnings, EARNING_PERIODS))}
        )
        SELECT '0x' || encode(wallet, 'hex') || ' ' || period || ' ' || starts AS id,
               count(*) OVER () AS total,
               json_build_object('ltz', coalesce(k.ltz, 0), 'rewards', coalesce(k.rewards, 0),
                                 'bought', coalesce(k.bought, 0),
                                 'brandId', '0x' || encode(brand_id, 'hex'))::text AS one,
               json_build_object('ltz', coalesce(o.ltz, 0), 'rewards', coalesce(o.rewards, 0),
                                 'bought', coalesce(o.bought, 0),
                                 'brandId', '0x' || encode(brand_id, 'hex'))::text AS other
          FROM kept k
          FULL JOIN owed o USING (brand_id, wallet, period, starts)
         WHERE (coalesce(k.ltz, 0), coalesce(k.rewards, 0), coalesce(k.bought, 0))
            <> (coalesce(o.ltz, 0), coalesce(o.rewards, 0), coalesce(o.bought, 0))
         ORDER BY wallet, period, starts
         LIMIT $2
        """,  # noqa: S608
    ),
    Check(
        "link_overspent",
        "links through which more was spent on a day than they allow",
        ("link", "redemptions"),
        """
        SELECT l.id || ' ' || s.link_day AS id, count(*) OVER () AS total,
               json_build_object('dailyAllowance', l.daily_allowance, 'host', l.host,
                                 'brandId', '0x' || encode(l.brand_id, 'hex'))::text AS one,
               json_build_object('ltz', sum(s.from_linked) / 10::numeric ^ 18)::text AS other
          FROM site_links l
          JOIN site_redemptions s ON s.link_id = l.id
         WHERE s.state NOT IN ('failed', 'reversed') AND ($1::bytea IS NULL OR l.brand_id = $1)
         GROUP BY l.id, s.link_day
        HAVING sum(s.from_linked) > l.daily_allowance * 1000000000000000000::numeric
         ORDER BY s.link_day, l.id
         LIMIT $2
        """,
    ),
    Check(
        "failed_redemption_on_chain",
        "site redemptions that failed or were reversed, with a claim or purchase that pays them",
        ("redemption", "fact"),
        """
        SELECT s.id::text, count(*) OVER () AS total,
               json_build_object('perkId', s.perk_id, 'wallet', '0x' || encode(s.wallet, 'hex'),
                                 'brandId', '0x' || encode(s.brand_id, 'hex'))::text AS one,
               json_build_object('transactionHash',
                                 '0x' || encode(fact.transaction_hash, 'hex'))::text AS other
          FROM site_redemptions s
          JOIN site_redemption_payments AS fact ON fact.redemption_id = s.id
         WHERE s.state IN ('failed', 'reversed')
           AND ($1::bytea IS NULL OR s.brand_id = $1)
         ORDER BY s.created_at, s.id
         LIMIT $2
        """,
    ),
    Check(
        "redemption_without_fact",
        "site redemptions whose code was shown, without the claim or purchase that paid them",
        ("redemption", "fact"),
        f"""
        SELECT s.id::text, count(*) OVER () AS total,
               json_build_object('perkId', s.perk_id, 'wallet', '0x' || encode(s.wallet, 'hex'),
                                 'brandId', '0x' || encode(s.brand_id, 'hex'))::text AS one,
               NULL AS other
          FROM site_redemptions s
         WHERE s.state = 'done'
               -- The index has no facts of a contract that was replaced.
           AND {OF_INDEXED_CONTRACT}
               -- A reorganisation undoes facts, which are then mined again.
           AND s.completed_at < now() - interval '10 minutes'
           AND (s.payment_lost_at IS NULL OR s.payment_lost_at < now() - interval '10 minutes')
           AND ($1::bytea IS NULL OR s.brand_id = $1)
               -- An index that is being rebuilt has not reached the block yet.
           AND EXISTS (SELECT FROM chains
                        WHERE cursor_number >= coalesce(s.paid_block_number, head_number))
           AND NOT EXISTS (
               SELECT FROM site_redemption_payments fact
                WHERE fact.redemption_id = s.id
                  AND (fact.block_hash, fact.log_index) = (s.paid_block_hash, s.paid_log_index))
         ORDER BY s.created_at, s.id
         LIMIT $2
        """,  # noqa: S608
    ),
    Check(
        "redemption_reversed",
        "site redemptions of the last 30 days whose code was shown and whose payment a "
        "reorganisation has removed for good",
        ("redemption", "fact"),
        """
        SELECT s.id::text, count(*) OVER () AS total,
               json_build_object('perkId', s.perk_id, 'wallet', '0x' || encode(s.wallet, 'hex'),
                                 'brandId', '0x' || encode(s.brand_id, 'hex'),
                                 'transactionHash', '0x' || encode(s.paid_transaction_hash, 'hex'))
                 ::text AS one,
               NULL AS other
          FROM site_redemptions s
         WHERE s.state = 'reversed' AND s.reversed_at > now() - interval '30 days'
           AND ($1::bytea IS NULL OR s.brand_id = $1)
               -- A redemption that is paid after all is another kind of discrepancy.
           AND NOT EXISTS (SELECT FROM site_redemption_payments WHERE redemption_id = s.id)
         ORDER BY s.created_at, s.id
         LIMIT $2
        """,
    ),
)
