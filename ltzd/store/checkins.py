"""Check-ins, streaks and milestones of wallets at brands' sites, and who is ranked by them.

Each write is one statement: claim, reward, ranks and the brand's budget are written together or not
at all. It compares what was decided on: a check-in stands on the streak's last day, which only ever
grows, so of those who come at once one is written and the others decide again; a milestone is a
unique row. The budget is a CHECK of the table that counts it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

import asyncpg

from ltzd.errors import BudgetExhausted
from ltzd.rules.limits import Quota
from ltzd.rules.streaks import CheckIn, Milestone, Streak
from ltzd.store.database import Connection
from ltzd.store.signals import ORIGIN
from ltzd.store.site_members import Member
from ltzd.values import Address

CHECK_IN_REWARD = 3
MILESTONE_REWARD = 4
"""Kinds of rewards, in rows and references (contracts.md)."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is decided on, and the database's time; `claimed` are the days of milestones.

    `checked_in_on`: the member's last check-in, with whatever wallet.
    """

    streak: Streak | None
    claimed: frozenset[int]
    now: datetime
    checked_in_on: date | None


async def standing(connection: Connection, member: Member) -> Standing:
    row = await connection.fetchrow(
        """
        SELECT s.days, s.last_day, s.best,
               ARRAY(SELECT m.days FROM milestone_claims m
                      WHERE m.brand_id = $1 AND m.wallet = $2) AS claimed,
               (SELECT checked_in_on FROM site_members
                 WHERE brand_id = $1 AND host = $3 AND site_user_id = $4) AS checked_in_on,
               clock_timestamp() AS now
          FROM (SELECT) AS one
          LEFT JOIN streaks s ON s.brand_id = $1 AND s.wallet = $2
        """,
        member.brand_id,
        member.wallet,
        member.host,
        member.site_user_id,
    )
    streak = None if row["days"] is None else Streak(row["days"], row["last_day"], row["best"])
    return Standing(streak, frozenset(row["claimed"]), row["now"], row["checked_in_on"])


@dataclass(frozen=True, slots=True)
class NewCheckIn:
    """A check-in to be written if the streak is still `before`; `reward_id` for what it earns, if
    that is more than 0."""

    member: Member
    before: Streak | None
    check_in: CheckIn
    reward_id: UUID
    budget: Quota | None


async def write_check_in(connection: Connection, new: NewCheckIn) -> bool:
    """False, and nothing written, when another check-in has come first.

    Raises BudgetExhausted when the brand may not give so much any more today.
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
            ORIGIN,
            new.member.host,
            new.member.site_user_id,
        )
    return row is not None


# A wallet that is new on a period's board is counted there, in the slot that its last byte names.
# `grown` passes over the rows that `ranked` makes: all parts of a statement see what was before it.
_CHECK_IN = """
WITH won AS (
  INSERT INTO streaks (brand_id, wallet, days, last_day, best)
  VALUES ($1, $2, $3, $4, $5)
      ON CONFLICT (brand_id, wallet) DO UPDATE
     SET days = excluded.days, last_day = excluded.last_day, best = excluded.best
   WHERE streaks.last_day = $6
  RETURNING brand_id, wallet, days, last_day
), checked_in AS (
  INSERT INTO checkins (brand_id, wallet, day, streak, ltz, reward_id)
  SELECT brand_id, wallet, last_day, days, $7, $8 FROM won
), dated AS (
  UPDATE site_members m
     SET checked_in_on = won.last_day
    FROM won
   WHERE m.brand_id = won.brand_id AND m.host = $13 AND m.site_user_id = $14
), places AS (
  SELECT brand_id, wallet, days, period,
         CASE period WHEN 'all' THEN date '1970-01-01'
                     ELSE date_trunc(period, last_day::timestamp)::date END AS starts
    FROM won
   CROSS JOIN unnest(ARRAY['all', 'month', 'week']) AS each (period)
), ranked AS (
  INSERT INTO streak_standings (brand_id, period, starts, wallet, days)
  SELECT brand_id, period, starts, wallet, days FROM places
      ON CONFLICT (brand_id, period, starts, wallet) DO NOTHING
  RETURNING brand_id, period, starts, wallet
), grown AS (
  UPDATE streak_standings s
     SET days = places.days
    FROM places
   WHERE s.brand_id = places.brand_id AND s.period = places.period
     AND s.starts = places.starts AND s.wallet = places.wallet AND s.days < places.days
), counted AS (
  INSERT INTO standing_totals (brand_id, board, period, starts, slot, ranked)
  SELECT brand_id, 'streaks', period, starts, get_byte(wallet, 19) % 16, 1
    FROM ranked
   ORDER BY period
      ON CONFLICT (brand_id, board, period, starts, slot) DO UPDATE
     SET ranked = standing_totals.ranked + 1
), used AS (
  INSERT INTO brand_usage (brand_id, kind, window_start, used, maximum)
  SELECT brand_id, 'ltz_a_day', $10::timestamptz, $7, $11::bigint
    FROM won
   WHERE $10 IS NOT NULL AND $7 > 0
      ON CONFLICT (brand_id, kind, window_start) DO UPDATE
     SET used = brand_usage.used + excluded.used, maximum = excluded.maximum
), owed AS (
  INSERT INTO rewards (id, kind, brand_id, wallet, ltz, earned_on)
  SELECT $8, $9, brand_id, wallet, $7, last_day FROM won WHERE $7 > 0
  RETURNING id
), told AS (
  SELECT pg_notify('ltzd_rewards', $12) FROM owed
)
SELECT (SELECT count(*) FROM told) FROM won
"""


@dataclass(frozen=True, slots=True)
class NewMilestone:
    """A milestone to be claimed on `day`."""

    brand_id: Address
    wallet: Address
    milestone: Milestone
    day: date
    reward_id: UUID
    budget: Quota | None


async def write_milestone(connection: Connection, new: NewMilestone) -> bool:
    """False, and nothing written, when it is claimed already, or the streak never was so long.

    Raises BudgetExhausted as `write_check_in` does.
    """
    with _budget_kept():
        row = await connection.fetchrow(
            _MILESTONE,
            new.brand_id,
            new.wallet,
            new.milestone.days,
            new.milestone.bonus,
            new.reward_id,
            MILESTONE_REWARD,
            new.day,
            None if new.budget is None else new.budget.start,
            None if new.budget is None else new.budget.maximum,
            ORIGIN,
        )
    return row is not None


_MILESTONE = """
WITH won AS (
  INSERT INTO milestone_claims (brand_id, wallet, days, ltz, reward_id)
  SELECT brand_id, wallet, $3, $4, $5
    FROM streaks
   WHERE brand_id = $1 AND wallet = $2 AND best >= $3
      ON CONFLICT (brand_id, wallet, days) DO NOTHING
  RETURNING brand_id, wallet, ltz, reward_id
), used AS (
  INSERT INTO brand_usage (brand_id, kind, window_start, used, maximum)
  SELECT brand_id, 'ltz_a_day', $8::timestamptz, ltz, $9::bigint
    FROM won
   WHERE $8 IS NOT NULL
      ON CONFLICT (brand_id, kind, window_start) DO UPDATE
     SET used = brand_usage.used + excluded.used, maximum = excluded.maximum
), owed AS (
  INSERT INTO rewards (id, kind, brand_id, wallet, ltz, earned_on)
  SELECT reward_id, $6, brand_id, wallet, ltz, $7 FROM won
  RETURNING id
), told AS (
  SELECT pg_notify('ltzd_rewards', $10) FROM owed
)
SELECT (SELECT count(*) FROM told) FROM won
"""


@contextmanager
def _budget_kept() -> Iterator[None]:
    try:
        yield
    except asyncpg.CheckViolationError as error:
        if error.constraint_name != "usage_within_maximum":
            raise
        raise BudgetExhausted("Budget exhausted") from error
