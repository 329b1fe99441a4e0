"""A check-in or milestone is written atomically with its reward, ranks and budget."""

import asyncio
import random
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace

from ltzd.errors import BudgetExhausted
from ltzd.rules.brands.configuration import Site
from ltzd.rules.event_handler.brand_limits import Quota, QuotaKind
from ltzd.rules.site_plugin.streaks import CheckIn, Milestone, Streak, extend_streak
from ltzd.store.database import Pool, session
from ltzd.store.site_plugin import check_ins
from ltzd.store.site_plugin.check_ins import NewCheckIn, NewMilestone
from ltzd.store.site_plugin.members import Member
from ltzd.values import Address
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.sites.members import insert_member

WALLET = a_wallet(0xA11CE)
OTHER_BRAND = a_wallet(0xC)
DAY = date(2026, 3, 10)
ONE_DAY = timedelta(days=1)
SITE = Site(hosts=("site.example",), checkin_reward=10)


def a_check_in(
    before: Streak | None = None, day: date = DAY, wallet: Address = WALLET, **changes: Any
) -> NewCheckIn:
    claim = extend_streak(before, day, SITE)
    assert claim is not None
    values: dict[str, Any] = {"check_in": claim, "budget": None}
    member = a_member(wallet, changes.pop("brand_id", BRAND))
    return NewCheckIn(member=member, before=before, reward_id=uuid4(), **values | changes)


def a_member(wallet: Address = WALLET, brand: Address = BRAND) -> Member:
    number = int.from_bytes(wallet)
    return Member(
        brand, "site.example", number & (2**62 - 1), "ann", UUID(bytes=wallet[:16]), wallet, None
    )


def a_milestone(days: int = 1, bonus: int = 50, **changes: Any) -> NewMilestone:
    values: dict[str, Any] = {"member": a_member(), "budget": None}
    return NewMilestone(
        milestone=Milestone(days, bonus), day=DAY, reward_id=uuid4(), **values | changes
    )


def a_budget(maximum: int) -> Quota:
    start = datetime(2026, 3, 10, tzinfo=UTC)
    return Quota(QuotaKind.LTZ_PER_DAY, maximum, start, start + ONE_DAY)


async def write(pool: Pool, *new_check_ins: NewCheckIn) -> list[bool]:
    for new in new_check_ins:
        await insert_member(pool, new.member)
    async with session(pool) as connection:
        return [await check_ins.write_check_in(connection, new) for new in new_check_ins]


async def write_milestone(pool: Pool, new: NewMilestone) -> bool:
    async with session(pool) as connection:
        return await check_ins.write_milestone(connection, new)


async def check_in_on(pool: Pool, *days: date, wallet: Address = WALLET) -> None:
    before = None
    for day in days:
        new = a_check_in(before, day, wallet)
        assert await write(pool, new) == [True]
        before = new.check_in.streak


async def rows(pool: Pool, sql: str) -> list[tuple[Any, ...]]:
    async with session(pool) as connection:
        return [tuple(row) for row in await connection.fetch(sql)]


TABLES = (
    *("check_ins", "streaks", "milestone_claims", "rewards", "leaderboard_streaks"),
    *("leaderboard_totals", "brand_usage"),
)


async def everything(pool: Pool) -> dict[str, list[tuple[Any, ...]]]:
    return {table: await rows(pool, f"SELECT * FROM {table} ORDER BY 1, 2") for table in TABLES}


async def read_snapshot(pool: Pool, wallet: Address = WALLET, brand: Address = BRAND) -> Any:
    async with session(pool) as connection:
        return await check_ins.read_snapshot(connection, a_member(wallet, brand))


async def test_a_member_who_never_checked_in_has_no_streak(pool: Pool) -> None:
    snapshot = await read_snapshot(pool)
    assert (snapshot.streak, snapshot.claimed) == (None, frozenset())
    assert snapshot.now.tzinfo is not None


async def test_a_check_in_is_written_with_its_reward_and_found_again(pool: Pool) -> None:
    new = a_check_in()

    assert await write(pool, new) == [True]

    assert (await read_snapshot(pool)).streak == Streak(1, DAY, 1)
    assert (await read_snapshot(pool, a_wallet(1))).streak is None
    assert (await read_snapshot(pool, brand=a_wallet(1))).streak is None
    assert await rows(pool, "SELECT wallet, day, streak, ltz, reward_id FROM check_ins") == [
        (WALLET, DAY, 1, 10, new.reward_id)
    ]
    assert await rows(pool, "SELECT id, kind, brand_id, wallet, ltz, earned_on FROM rewards") == [
        (new.reward_id, 3, BRAND, WALLET, 10, DAY)
    ]


async def test_a_check_in_without_a_reward_queues_no_mint(pool: Pool) -> None:
    free = a_check_in(check_in=CheckIn(Streak(1, DAY, 1), 0), budget=a_budget(100))

    assert await write(pool, free) == [True]

    assert await rows(pool, "SELECT ltz, reward_id FROM check_ins") == [(0, None)]
    assert await rows(pool, "SELECT 1 FROM rewards UNION ALL SELECT 1 FROM brand_usage") == []


async def test_a_streak_continues_and_its_best_is_kept(pool: Pool) -> None:
    await check_in_on(pool, DAY, DAY + ONE_DAY, DAY + 5 * ONE_DAY)

    assert (await read_snapshot(pool)).streak == Streak(1, DAY + 5 * ONE_DAY, 2)
    assert await rows(pool, "SELECT day, streak FROM check_ins ORDER BY day") == [
        (DAY, 1),
        (DAY + ONE_DAY, 2),
        (DAY + 5 * ONE_DAY, 1),
    ]


async def test_a_check_in_decided_on_an_outdated_streak_is_not_written(pool: Pool) -> None:
    first, rival = a_check_in(), a_check_in()
    assert await write(pool, first) == [True]
    before = await everything(pool)

    later = a_check_in(None, DAY + ONE_DAY)
    stale = a_check_in(Streak(1, DAY - ONE_DAY, 1), DAY + ONE_DAY)
    assert await write(pool, rival, later, stale) == [False, False, False]

    assert await everything(pool) == before


async def test_a_member_with_another_wallet_does_not_check_in_on_the_same_day_again(
    pool: Pool,
) -> None:
    """The check-in was decided before the member's first one was written."""
    stranger, other = a_check_in(brand_id=OTHER_BRAND), a_wallet(0xB0B)
    await insert_member(pool, stranger.member)
    assert await write(pool, a_check_in()) == [True]
    await value(pool, "UPDATE site_members SET wallet = $1 WHERE brand_id = $2", other, BRAND)
    moved = replace(a_member(), wallet=other)
    again, later = (replace(a_check_in(day=day), member=moved) for day in (DAY, DAY + ONE_DAY))
    assert await write(pool, again) == [False]
    assert await write(pool, later) == [True]
    assert await write(pool, stranger) == [True], "a member of another brand"


async def test_of_concurrent_check_ins_one_is_written(pool: Pool) -> None:
    outcomes = await asyncio.gather(*(write(pool, a_check_in()) for _ in range(50)))

    assert sorted(outcomes) == [[False]] * 49 + [[True]]
    assert await value(pool, "SELECT count(*) FROM rewards") == 1
    assert await value(pool, "SELECT sum(ranked) FROM leaderboard_totals") == 3


async def test_a_rolled_back_check_in_leaves_nothing(pool: Pool) -> None:
    nothing = await everything(pool)

    await insert_member(pool, a_member())
    async with session(pool) as connection:
        undone = connection.transaction()
        await undone.start()
        new = a_check_in(budget=a_budget(100))
        assert await check_ins.write_check_in(connection, new)
        assert await check_ins.write_milestone(connection, a_milestone(budget=a_budget(100)))
        await undone.rollback()

    assert await everything(pool) == nothing


async def test_a_milestone_is_written_once_for_a_streak_that_was_long_enough(pool: Pool) -> None:
    assert not await write_milestone(pool, a_milestone(1))
    await check_in_on(pool, DAY, DAY + ONE_DAY, DAY + 5 * ONE_DAY)
    assert not await write_milestone(pool, a_milestone(3))
    new = a_milestone(2)

    outcomes = await asyncio.gather(
        write_milestone(pool, new), *(write_milestone(pool, a_milestone(2)) for _ in range(20))
    )

    assert sorted(outcomes) == [False] * 20 + [True]
    assert (await read_snapshot(pool)).claimed == {2}
    assert await write_milestone(pool, a_milestone(1))
    assert (await read_snapshot(pool)).claimed == {1, 2}
    assert (
        await rows(pool, "SELECT kind, wallet, ltz, earned_on FROM rewards WHERE kind = 4")
        == [(4, WALLET, 50, DAY)] * 2
    )
    assert (
        await value(
            pool, "SELECT count(*) FROM milestone_claims m JOIN rewards r ON r.id = m.reward_id"
        )
        == 2
    )


# --- the budget ---------------------------------------------------------------------------------


async def test_the_brands_budget_counts_check_ins_and_milestones(pool: Pool) -> None:
    assert await write(pool, a_check_in(budget=a_budget(100))) == [True]
    assert await write_milestone(pool, a_milestone(bonus=90, budget=a_budget(100)))

    assert await rows(pool, "SELECT kind, window_start, used, maximum FROM brand_usage") == [
        ("ltz_per_day", a_budget(1).start, 100, 100)
    ]
    before = await everything(pool)
    with pytest.raises(BudgetExhausted):
        await write(pool, a_check_in(wallet=a_wallet(2), budget=a_budget(100)))
    assert await everything(pool) == before
    assert await write(pool, a_check_in(wallet=a_wallet(2), budget=a_budget(110))) == [True]


async def test_a_milestone_above_the_budget_is_not_written(pool: Pool) -> None:
    await check_in_on(pool, DAY)
    before = await everything(pool)
    with pytest.raises(BudgetExhausted):
        await write_milestone(pool, a_milestone(bonus=101, budget=a_budget(100)))
    assert await everything(pool) == before


async def test_concurrent_check_ins_do_not_exceed_the_budget(pool: Pool) -> None:
    outcomes = await asyncio.gather(
        *(
            write(pool, a_check_in(wallet=a_wallet(number), budget=a_budget(75)))
            for number in range(1, 31)
        ),
        return_exceptions=True,
    )

    assert sum(outcome == [True] for outcome in outcomes) == 7
    assert sum(isinstance(outcome, BudgetExhausted) for outcome in outcomes) == 23
    assert await value(pool, "SELECT sum(ltz) FROM rewards") == 70
    assert await value(pool, "SELECT count(*) FROM streaks") == 7
    assert await value(pool, "SELECT sum(ranked) FROM leaderboard_totals WHERE period = 'all'") == 7


async def test_another_constraint_violation_is_not_reported_as_the_budget(pool: Pool) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await write(pool, a_check_in(own_ltz=11))


# --- ranks --------------------------------------------------------------------------------------


def starts(day: date) -> dict[str, date]:
    monday = next(day - n * ONE_DAY for n in range(7) if (day - n * ONE_DAY).isoweekday() == 1)
    return {"week": monday, "month": date(day.year, day.month, 1), "all": date(1970, 1, 1)}


async def test_ranks_are_the_longest_streaks_of_each_week_month_and_all_time(pool: Pool) -> None:
    """Compares the ranks with the check-ins after concurrent check-ins of many wallets and days."""
    chance = random.Random(9)
    days = [date(2026, 12, 20) + n * ONE_DAY for n in range(26)]
    came = {
        a_wallet(number * 7 + 1): [day for day in days if chance.random() < 0.75]
        for number in range(24)
    }
    await asyncio.gather(
        *(check_in_on(pool, *new_check_ins, wallet=w) for w, new_check_ins in came.items())
    )

    longest: dict[tuple[str, date, Address], int] = {}
    for wallet, day, streak in await rows(pool, "SELECT wallet, day, streak FROM check_ins"):
        for period, start in starts(day).items():
            key = period, start, wallet
            longest[key] = max(longest.get(key, 0), streak)
    ranked: dict[tuple[str, date], int] = defaultdict(int)
    for period, start, _ in longest:
        ranked[period, start] += 1

    kept = await rows(pool, "SELECT period, starts, wallet, days FROM leaderboard_streaks")
    assert {each[:3]: each[3] for each in kept} == longest
    assert len({start for period, start, _ in longest if period == "week"}) == 5
    totals = await rows(
        pool,
        """
        SELECT period, starts, sum(ranked)::bigint FROM leaderboard_totals
         WHERE board = 'streaks' GROUP BY 1, 2
        """,
    )
    assert {each[:2]: each[2] for each in totals} == ranked
    assert await value(pool, "SELECT count(DISTINCT slot) FROM leaderboard_totals") > 5


async def test_a_shorter_streak_of_the_same_month_keeps_the_longer_one(pool: Pool) -> None:
    await check_in_on(pool, *(DAY + n * ONE_DAY for n in (0, 1, 2, 10)))

    assert sorted(await rows(pool, "SELECT period, starts, days FROM leaderboard_streaks")) == [
        ("all", date(1970, 1, 1), 3),
        ("month", date(2026, 3, 1), 3),
        ("week", date(2026, 3, 9), 3),
        ("week", date(2026, 3, 16), 1),
    ]
