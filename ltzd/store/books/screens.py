"""Queries that rule out several checks in one pass, run by `reconciliation.reconcile_all`.

Books without a discrepancy are the usual case, and most checks compare the same two tables. A
screen compares them once. A screen may suspect a check whose query then finds nothing, but never
rules out one that would find a row.
"""

from collections.abc import Sequence

import msgspec

from ltzd.store import mint_references
from ltzd.store.books.site_reconciliation import EARNING_PERIODS, owed_earnings


class Screen(msgspec.Struct, frozen=True):
    """`sql` takes a brand (NULL for all rows) and returns one row, with a boolean for each of
    `kinds`: may this check find a row?"""

    name: str
    kinds: tuple[str, ...]
    sql: str


_EVENTS = Screen(
    "rewards beside events",
    ("event_without_reward", "event_and_reward_differ", "reward_without_event"),
    """
    SELECT coalesce(bool_or(e.ltz > 0 AND r.id IS NULL), false) AS event_without_reward,
           coalesce(bool_or(e.id = r.id
                            AND ((e.ltz, e.brand_id) <> (r.ltz, r.brand_id)
                                 OR u.wallet IS DISTINCT FROM r.wallet
                                    AND NOT EXISTS (SELECT FROM former_wallets f
                                                     WHERE f.wallet = r.wallet
                                                       AND f.user_id = e.user_id))), false)
             AS event_and_reward_differ,
           coalesce(bool_or(e.id IS NULL
                            AND NOT EXISTS (SELECT FROM closed_event_sums c
                                             WHERE c.brand_id = r.brand_id
                                               AND c.first_id <= r.id AND r.id < c.end_id)), false)
             AS reward_without_event
      FROM (SELECT id, ltz, wallet, brand_id FROM rewards WHERE kind = 1) AS r
      FULL JOIN events e ON e.id = r.id
      LEFT JOIN users u ON u.id = e.user_id
     WHERE $1::bytea IS NULL OR $1 IN (e.brand_id, r.brand_id)
    """,
)
_MINTS = Screen(
    "rewards beside mints",
    (
        "minted_without_mint",
        "foreign_mint",
        "mint_and_reward_differ",
        "minted_twice",
        "mint_not_told",
    ),
    # Of a reward's two mints, either both have its reference, and the join counts the reward twice,
    # or one has another reference and is foreign.
    f"""
    SELECT coalesce(bool_or(r.mint_block_hash IS NOT NULL
                            AND (r.mint_block_hash, r.mint_block_number, r.mint_transaction_hash,
                                 r.wallet, r.ltz * 1000000000000000000::numeric)
                                IS DISTINCT FROM (m.block_hash, m.block_number, m.transaction_hash,
                                                  m.recipient, m.amount)), false)
             AS minted_without_mint,
           coalesce(bool_or(r.id IS NULL), false) AS foreign_mint,
           coalesce(bool_or(m.amount <> r.ltz * 1000000000000000000::numeric
                            OR m.recipient <> r.wallet), false) AS mint_and_reward_differ,
           coalesce(bool_or(r.id IS NULL), false)
             OR count(r.id) > (SELECT count(*) FROM rewards
                                WHERE $1::bytea IS NULL OR brand_id = $1) AS minted_twice,
           coalesce(bool_or(m.reference IS NOT NULL AND r.mint_block_hash IS NULL), false)
             AS mint_not_told
      FROM rewards r
      FULL JOIN mints m ON m.reference = {mint_references.OF_REWARD}
     WHERE $1::bytea IS NULL OR r.brand_id = $1 OR r.id IS NULL
    """,  # noqa: S608
)


def _earnings(period: str) -> Screen:
    """One period fits into memory where all three together do not."""
    return Screen(
        f"earnings beside rewards, {period}",
        ("earnings_and_rewards_differ",),
        f"""
        WITH kept AS (
          SELECT brand_id, wallet, starts, ltz, rewards, bought
            FROM earnings
           WHERE period = '{period}' AND ($1::bytea IS NULL OR brand_id = $1)
        ), owed AS ({owed_earnings(period)}
        )
        SELECT EXISTS (
          SELECT
            FROM kept k
            FULL JOIN owed o USING (brand_id, wallet, starts)
           WHERE (coalesce(k.ltz, 0), coalesce(k.rewards, 0), coalesce(k.bought, 0))
              <> (coalesce(o.ltz, 0), coalesce(o.rewards, 0), coalesce(o.bought, 0))
        ) AS earnings_and_rewards_differ
        """,  # noqa: S608
    )


SCREENS: Sequence[Screen] = (*map(_earnings, EARNING_PERIODS), _MINTS, _EVENTS)
