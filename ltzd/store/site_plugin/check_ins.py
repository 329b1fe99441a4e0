"""Check-ins, streaks and milestones of wallets at brands' sites, and the wallets ranked by streak.

Each write is one statement: claim, reward, ranks and the brand's budget are written together or not
at all. A write compares the rows it was decided on. A check-in expects the streak's last day, which
only grows, so of concurrent check-ins one is written and the others decide again. A milestone is a
unique row. The budget is a CHECK of the table that counts it.

A check-in locks its member's row and uses the wallet that stands there, as a link does
(`links.py`). So a member with two wallets, one after the other, checks in once a day.

Streaks belong to the wallet, whichever member made them. The member's own part is stored
separately: `own_streak` is the member's own days in a row with this wallet, and `own_ltz` is their
part of a reward.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from uuid import UUID

import asyncpg
import msgspec

from ltzd.errors import BudgetExhausted
from ltzd.rules.event_handler.brand_limits import Quota
from ltzd.rules.site_plugin.streaks import CheckIn, Milestone, Streak
from ltzd.store.database import Connection
from ltzd.store.site_plugin.members import Member
from ltzd.values import Address

CHECK_IN_REWARD = 3
MILESTONE_REWARD = 4
"""Kinds of rewards, in rows and references (docs/contracts.md)."""


class CheckInSnapshot(msgspec.Struct, frozen=True):
    """The rows that a check-in is decided on, and the database's time.

    `claimed` are the days of claimed milestones. `checked_in_on` is the member's last check-in,
    with any wallet. `own_days` counts the days in a row, up to the streak's last one, on which this
    member checked in. `wallet` is the stored wallet of the member, or None for an unknown member.
    """

    streak: Streak | None
    claimed: frozenset[int]
    now: datetime
    checked_in_on: date | None
    own_days: int
    wallet: Address | None


async def read_snapshot(connection: Connection, member: Member) -> CheckInSnapshot:
    row = await connection.fetchrow(
        """
        SELECT s.days, s.last_day, s.best,
               ARRAY(SELECT m.days FROM milestone_claims m
                      WHERE m.brand_id = $1 AND m.wallet = $2) AS claimed,
               m.checked_in_on, m.wallet AS wallet_now,
               (SELECT c.own_streak FROM check_ins c
                 WHERE c.brand_id = $1 AND c.wallet = $2 AND c.day = s.last_day
                   AND c.host = $3 AND c.site_user_id = $4) AS own_days,
               clock_timestamp() AS now
          FROM (SELECT) AS one
          LEFT JOIN streaks s ON s.brand_id = $1 AND s.wallet = $2
          LEFT JOIN site_members m
            ON m.brand_id = $1 AND m.host = $3 AND m.site_user_id = $4
        """,
        member.brand_id,
        member.wallet,
        member.host,
        member.site_user_id,
    )
    streak = None if row["days"] is None else Streak(row["days"], row["last_day"], row["best"])
    return CheckInSnapshot(
        streak=streak,
        claimed=frozenset(row["claimed"]),
        now=row["now"],
        checked_in_on=row["checked_in_on"],
        own_days=row["own_days"] or 0,
        wallet=None if row["wallet_now"] is None else Address(row["wallet_now"]),
    )


class NewCheckIn(msgspec.Struct, frozen=True):
    """A check-in to write if the streak is still `before`; `reward_id` is for a reward of more than
    0.

    `own_days` of the streak, this one included, and `own_ltz` of the reward are the member's own.
    """

    member: Member
    before: Streak | None
    check_in: CheckIn
    reward_id: UUID
    budget: Quota | None
    own_days: int = 1
    own_ltz: int = 0


async def write_check_in(connection: Connection, new: NewCheckIn) -> bool:
    """Return False, and write nothing, if the decision is outdated.

    Another check-in of the wallet or the member has been written, or the member has another wallet.
    Raises BudgetExhausted if the reward exceeds the brand's budget of the day.
    """
    streak, reward = new.check_in.streak, new.check_in.reward
    with _budget_kept():
        row = await connection.fetchrow(
            _CHECK_IN,
            new.member.brand_id,
            new.member.wallet,
            streak.days,
            streak.last_day,
            streak.best,
            None if new.before is None else new.before.last_day,
            reward,
            new.reward_id if reward else None,
            CHECK_IN_REWARD,
            None if new.budget is None else new.budget.start,
            None if new.budget is None else new.budget.maximum,
            new.member.host,
            new.member.site_user_id,
            new.own_days,
            new.own_ltz,
        )
    return row is not None


# `member` waits for a concurrent link or check-in of the same member, and then reads its rows.
# A wallet that is new on a period's leaderboard is counted there, in the slot of its last byte.
# `grown` does not update the rows that `ranked` inserts: every part of a statement reads the rows
# from before the statement.
_CHECK_IN = """
WITH member AS (
  SELECT brand_id, wallet
    FROM site_members
   WHERE brand_id = $1 AND host = $12 AND site_user_id = $13 AND wallet = $2
     AND (checked_in_on IS NULL OR checked_in_on < $4)
     FOR UPDATE
), written AS (
  INSERT INTO streaks (brand_id, wallet, days, last_day, best)
  SELECT brand_id, wallet, $3::integer, $4::date, $5::integer FROM member
      ON CONFLICT (brand_id, wallet) DO UPDATE
     SET days = excluded.days, last_day = excluded.last_day, best = excluded.best
   WHERE streaks.last_day = $6
  RETURNING brand_id, wallet, days, last_day
), checked_in AS (
  INSERT INTO check_ins (brand_id, wallet, day, streak, ltz, reward_id,
                        host, site_user_id, own_streak, own_ltz)
  SELECT brand_id, wallet, last_day, days, $7, $8, $12, $13, $14, $15 FROM written
), dated AS (
  UPDATE site_members m
     SET checked_in_on = written.last_day
    FROM written
   WHERE m.brand_id = written.brand_id AND m.host = $12 AND m.site_user_id = $13
), places AS (
  SELECT brand_id, wallet, days, period,
         CASE period WHEN 'all' THEN date '1970-01-01'
                     ELSE date_trunc(period, last_day::timestamp)::date END AS starts
    FROM written
   CROSS JOIN unnest(ARRAY['all', 'month', 'week']) AS each (period)
), ranked AS (
  INSERT INTO leaderboard_streaks (brand_id, period, starts, wallet, days)
  SELECT brand_id, period, starts, wallet, days FROM places
      ON CONFLICT (brand_id, period, starts, wallet) DO NOTHING
  RETURNING brand_id, period, starts, wallet
), grown AS (
  UPDATE leaderboard_streaks s
     SET days = places.days
    FROM places
   WHERE s.brand_id = places.brand_id AND s.period = places.period
     AND s.starts = places.starts AND s.wallet = places.wallet AND s.days < places.days
), counted AS (
  INSERT INTO leaderboard_totals (brand_id, board, period, starts, slot, ranked)
  SELECT brand_id, 'streaks', period, starts, get_byte(wallet, 19) % 16, 1
    FROM ranked
   ORDER BY period
      ON CONFLICT (brand_id, board, period, starts, slot) DO UPDATE
     SET ranked = leaderboard_totals.ranked + 1
), used AS (
  INSERT INTO brand_usage (brand_id, kind, window_start, used, maximum)
  SELECT brand_id, 'ltz_per_day', $10::timestamptz, $7, $11::bigint
    FROM written
   WHERE $10 IS NOT NULL AND $7 > 0
      ON CONFLICT (brand_id, kind, window_start) DO UPDATE
     SET used = brand_usage.used + excluded.used, maximum = excluded.maximum
), owed AS (
  INSERT INTO rewards (id, kind, brand_id, wallet, ltz, earned_on)
  SELECT $8, $9, brand_id, wallet, $7, last_day FROM written WHERE $7 > 0
)
SELECT FROM written
"""


async def own_best(connection: Connection, member: Member) -> int:
    """The longest streak of this member alone with this wallet."""
    days: int | None = await connection.fetchval(
        """
        SELECT max(own_streak)
          FROM check_ins
         WHERE brand_id = $1 AND wallet = $2 AND host = $3 AND site_user_id = $4
        """,
        member.brand_id,
        member.wallet,
        member.host,
        member.site_user_id,
    )
    return days or 0


class NewMilestone(msgspec.Struct, frozen=True):
    """A milestone to claim on `day`; `own_ltz` of its bonus is the member's own."""

    member: Member
    milestone: Milestone
    day: date
    reward_id: UUID
    budget: Quota | None
    own_ltz: int = 0


async def write_milestone(connection: Connection, new: NewMilestone) -> bool:
    """Return False, and write nothing, if it is claimed already or the streak never reached it.

    Raises BudgetExhausted as `write_check_in` does.
    """
    with _budget_kept():
        row = await connection.fetchrow(
            _MILESTONE,
            new.member.brand_id,
            new.member.wallet,
            new.milestone.days,
            new.milestone.bonus,
            new.reward_id,
            MILESTONE_REWARD,
            new.day,
            None if new.budget is None else new.budget.start,
            None if new.budget is None else new.budget.maximum,
            new.member.host,
            new.member.site_user_id,
            new.own_ltz,
        )
    return row is not None


_MILESTONE = """
WITH written AS (
  INSERT INTO milestone_claims (brand_id, wallet, days, ltz, reward_id,
                                host, site_user_id, own_ltz)
  SELECT brand_id, wallet, $3, $4, $5, $10, $11, $12
    FROM streaks
   WHERE brand_id = $1 AND wallet = $2 AND best >= $3
      ON CONFLICT (brand_id, wallet, days) DO NOTHING
  RETURNING brand_id, wallet, ltz, reward_id
), used AS (
  INSERT INTO brand_usage (brand_id, kind, window_start, used, maximum)
  SELECT brand_id, 'ltz_per_day', $8::timestamptz, ltz, $9::bigint
    FROM written
   WHERE $8 IS NOT NULL
      ON CONFLICT (brand_id, kind, window_start) DO UPDATE
     SET used = brand_usage.used + excluded.used, maximum = excluded.maximum
), owed AS (
  INSERT INTO rewards (id, kind, brand_id, wallet, ltz, earned_on)
  SELECT reward_id, $6, brand_id, wallet, ltz, $7 FROM written
)
SELECT FROM written
"""


@contextmanager
def _budget_kept() -> Iterator[None]:
    try:
        yield
    except asyncpg.CheckViolationError as error:
        if error.constraint_name != "usage_within_maximum":
            raise
        raise BudgetExhausted("Budget exhausted") from error
