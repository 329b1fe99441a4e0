"""LTZ that wallets have earned from each brand, and the leaderboards read from these totals.

Earnings are derived from mined rewards. Code that changes a reward's mint moves them in the same
database transaction, by `MOVE`. Amounts are whole LTZ. Purchases count for all time, and in no
rank.
"""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Final
from uuid import UUID

import msgspec

from ltzd.errors import DatabaseUnavailable
from ltzd.rules.site_plugin.leaderboards import Metric, Period
from ltzd.store.database import Connection
from ltzd.store.replica import NotReplicated
from ltzd.values import Address


async def subtract(connection: Connection, rewards: Sequence[UUID]) -> None:
    """Stop counting rewards that were counted as minted: their mints are undone."""
    if rewards:
        check_moved(await connection.fetchval(_SUBTRACT, rewards))


def check_moved(has_moved_all: bool) -> None:
    """Raises DatabaseUnavailable if another writer has changed the same earnings meanwhile.

    Then the caller's database transaction must not commit. `has_moved_all` is HAS_MOVED_ALL.
    """
    if not has_moved_all:
        raise DatabaseUnavailable("Another process has just moved the same earnings")


# Not an upsert: its answer would not tell which wallets were ranked before. The earlier rows are
# read first, so it is known which rows are new, and a plain INSERT checks for no conflict. The
# earlier rows are updated by their place, which saves a search of each in the largest index. A row
# that a concurrent writer has moved away from its place is left out, which HAS_MOVED_ALL tells:
# the indexer is alone, but a lane that links lost mints (`lost_mints`) is a second writer.
MOVE: Final = """
moves AS (
  SELECT brand_id, period, starts, wallet,
         coalesce(sum(sign * ltz) FILTER (WHERE kind <> 2), 0)::bigint AS ltz,
         coalesce(sum(sign) FILTER (WHERE kind <> 2), 0)::bigint AS rewards,
         coalesce(sum(sign * ltz) FILTER (WHERE kind = 2), 0)::bigint AS bought
    FROM turned
   CROSS JOIN LATERAL (
         VALUES ('all', date '1970-01-01'),
                ('month', date_trunc('month', earned_on::timestamp)::date),
                ('week', date_trunc('week', earned_on::timestamp)::date)) AS each (period, starts)
   WHERE period = 'all' OR kind <> 2
   GROUP BY brand_id, period, starts, wallet
), moved AS MATERIALIZED (
  SELECT moves.*, was.ctid AS place, coalesce(was.rewards, 0) AS rewards_before
    FROM moves
    LEFT JOIN earnings was ON was.brand_id = moves.brand_id AND was.period = moves.period
                          AND was.starts = moves.starts AND was.wallet = moves.wallet
   ORDER BY moves.brand_id, moves.period, moves.starts, moves.wallet
), begun AS (
  INSERT INTO earnings (brand_id, period, starts, wallet, ltz, rewards, bought)
  SELECT brand_id, period, starts, wallet, ltz, rewards, bought FROM moved WHERE place IS NULL
), changed AS (
  UPDATE earnings
     SET ltz = earnings.ltz + moved.ltz,
         rewards = earnings.rewards + moved.rewards,
         bought = earnings.bought + moved.bought
    FROM moved
   WHERE earnings.ctid = moved.place
RETURNING 1
), ranked AS (
  INSERT INTO leaderboard_totals (brand_id, board, period, starts, slot, ranked)
  SELECT brand_id, 'earnings', period, starts, 0,
         sum((rewards_before + rewards > 0)::int - (rewards_before > 0)::int)
    FROM moved
   WHERE (rewards_before + rewards > 0) <> (rewards_before > 0)
   GROUP BY brand_id, period, starts
   ORDER BY brand_id, period, starts
      ON CONFLICT (brand_id, board, period, starts, slot) DO UPDATE
     SET ranked = leaderboard_totals.ranked + excluded.ranked
)
"""
"""Common table expressions that move the earnings by the rewards in `turned`.

`turned` has each reward once: brand_id, kind, wallet, ltz, earned_on, and `sign`, which is 1 for a
reward whose mint was recorded and -1 for a reward whose mint is undone.
"""

HAS_MOVED_ALL: Final = """
(SELECT count(*) FROM changed) = (SELECT count(place) FROM moved)
"""

_SUBTRACT = f"""
WITH turned AS (
  SELECT brand_id, kind, wallet, ltz, earned_on, -1 AS sign
    FROM rewards
   WHERE id = ANY($1::uuid[])
), {MOVE}
SELECT {HAS_MOVED_ALL}
"""  # noqa: S608


class RankedWallet(msgspec.Struct, frozen=True):
    """A wallet on a leaderboard.

    `user_id` is None if no user has the wallet; `username` if no member logs in with it at the
    brand's sites.
    """

    wallet: Address
    value: int
    user_id: UUID | None
    username: str | None


class LeaderboardTotals(msgspec.Struct, frozen=True):
    """The first ranks in order, and the number of ranked wallets.

    `member_key` makes the brand's public member ids. `read_at` is the database's time.
    """

    places: tuple[RankedWallet, ...]
    total: int
    member_key: bytes
    read_at: datetime


async def read_top(
    connection: Connection,
    brand_id: Address,
    metric: Metric,
    period: Period,
    starts: date,
    limit: int,
) -> LeaderboardTotals:
    """`starts` is the period's first day. Equal values are ordered by wallet.

    Raises NotReplicated.
    """
    rows = await connection.fetch(TOP, brand_id, period, starts, limit, metric)
    if not rows:  # the primary never deletes a brand
        raise NotReplicated("the brand is not there yet")
    places = (
        RankedWallet(row["wallet"], row["value"], row["user_id"], row["username"])
        for row in rows
        if row["wallet"] is not None
    )
    first = rows[0]
    return LeaderboardTotals(tuple(places), first["total"], first["member_key"], first["read_at"])


# Only the metric's part is read, in the order of its index, and no more rows than are answered.
# A wallet's user is the one whose e-mail address leads to it. A wallet that a user is linked to, or
# has left, has no user: the user is ranked with the own wallet. Of several members with one wallet,
# who may have typed somebody's e-mail address, the one is named whom the wallet's owner has linked.
TOP = """
SELECT b.member_key, now() AS read_at, first.wallet, first.value,
       (SELECT u.id
          FROM users u
         WHERE u.wallet = first.wallet
         ORDER BY u.created_at, u.id
         LIMIT 1) AS user_id,
       (SELECT m.username
          FROM site_members m
         WHERE m.brand_id = $1 AND m.wallet = first.wallet
         ORDER BY EXISTS (SELECT FROM active_site_links l WHERE l.id = m.link_id) DESC,
                  m.seen_at DESC, m.host, m.site_user_id
         LIMIT 1) AS username,
       (SELECT coalesce(sum(t.ranked), 0)::bigint
          FROM leaderboard_totals t
         WHERE t.brand_id = $1 AND t.period = $2 AND t.starts = $3
           AND t.board = CASE $5 WHEN 'streak' THEN 'streaks' ELSE 'earnings' END) AS total
  FROM brands b
  LEFT JOIN (
        (SELECT wallet, ltz AS value
           FROM earnings
          WHERE $5 = 'ltz_earned' AND brand_id = $1 AND period = $2 AND starts = $3 AND ltz > 0
          ORDER BY ltz DESC, wallet
          LIMIT $4)
         UNION ALL
        (SELECT wallet, rewards
           FROM earnings
          WHERE $5 = 'activity' AND brand_id = $1 AND period = $2 AND starts = $3 AND rewards > 0
          ORDER BY rewards DESC, wallet
          LIMIT $4)
         UNION ALL
        (SELECT wallet, days
           FROM leaderboard_streaks
          WHERE $5 = 'streak' AND brand_id = $1 AND period = $2 AND starts = $3
          ORDER BY days DESC, wallet
          LIMIT $4)) AS first ON true
 WHERE b.id = $1
 ORDER BY first.value DESC, first.wallet
"""
