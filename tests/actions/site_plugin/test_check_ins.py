"""Check-ins and milestones on real PostgreSQL, whose clock the tests set."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio
from msgspec.structs import replace
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.site_plugin.check_ins import CheckInResult, CheckIns
from ltzd.errors import (
    CheckInRefused,
    DatabaseUnavailable,
    LtzdError,
    MilestoneRefused,
    SiteUnknown,
)
from ltzd.rules.site_plugin.streaks import Milestone
from ltzd.store.brands import configurations as brands
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, open_pool, session, transaction
from ltzd.store.site_plugin.members import Member
from ltzd.store.wakeups import REWARDS, Wakeup, WakeupHub
from ltzd.values import LTZ, Address
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.chain.fake_pool import a_fake_pool
from tests.support.clocks import ManualClock
from tests.support.rows.core import BRAND, a_wallet, running, value
from tests.support.rows.notifications import announced, notifications, until_count
from tests.support.sites.members import insert_member, linked
from tests.support.surfaces.event_action import SEALER, a_brand

SITE: dict[str, Any] = {
    "hosts": ("site.example",),
    "checkin_reward": 10,
    "multipliers": {1: Decimal(1), 3: Decimal("1.55")},
    "milestones": {2: 20, 4: 50},
}
NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
ONE_DAY = timedelta(days=1)


def a_member(number: int = 1, wallet: Address | None = None) -> Member:
    return Member(
        brand_id=BRAND,
        host="site.example",
        site_user_id=number,
        username="ann",
        user_id=UUID(int=number),
        wallet=wallet or a_wallet(number),
        subject=None,
    )


ANN = a_member()
NOT_REACHED = (
    "You have not reached this milestone yet: it takes a streak of 4, and your longest is {best}."
)


class World:
    """The action in one process, with its own pool."""

    def __init__(self, url: str, pool: Pool) -> None:
        self.pool = pool
        self.brand_cache = BrandCache()
        self.wakeups = WakeupHub(url)
        self.reward_wakeup: Wakeup = self.wakeups.subscribe(REWARDS)
        self.node = FakeNode()
        self.node.mine()
        self.clock = ManualClock()
        capacity = MintCapacity(pool, self.node.node, CHAIN_ID, LTZ_AT, self.clock)
        self.check_ins = CheckIns(pool, self.wakeups, self.brand_cache, capacity)

    async def brand(self, site: dict[str, Any] | None = SITE, **changes: Any) -> None:
        async with transaction(self.pool) as connection:
            await brands.apply(connection, a_brand(site=site, **changes), SEALER)
            await self.brand_cache.refresh(connection)

    async def meet(self, *members: Member) -> None:
        """Saves the members as their first log-ins do."""
        for member in members:
            await insert_member(self.pool, member)

    async def at(self, moment: datetime) -> None:
        """Sets the database's clock."""
        await value(self.pool, "UPDATE clock.hands SET at = $1", moment)

    async def check_in_for(self, days: int, begin: datetime = NOON) -> list[CheckInResult]:
        """Checks in on this number of consecutive days."""
        answers = []
        for number in range(days):
            await self.at(begin + number * ONE_DAY)
            answers.append(await self.check_ins.check_in(ANN))
        return answers

    async def rewards(self) -> list[tuple[Any, ...]]:
        async with session(self.pool) as connection:
            rows = await connection.fetch(
                "SELECT kind, wallet, ltz, earned_on FROM rewards ORDER BY position"
            )
        return [tuple(row) for row in rows]


@asynccontextmanager
async def a_world(url: str) -> AsyncIterator[World]:
    pool = await open_pool(url)
    world = World(url, pool)
    await world.brand()
    await world.meet(ANN)
    yield world
    pool.terminate()


@pytest_asyncio.fixture
async def clocked_url(database_url: str) -> str:
    """A database whose clock stands still, for every connection, where `World.at` has set it."""
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        f"""
        CREATE SCHEMA clock;
        CREATE TABLE clock.hands AS SELECT timestamptz '{NOON}' AS at;
        CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql
            AS 'SELECT at FROM clock.hands';
        ALTER DATABASE {database_url.rpartition("/")[2]}
            SET search_path = clock, pg_catalog, public;
        """
    )
    await connection.close()
    return database_url


@pytest_asyncio.fixture
async def world(clocked_url: str) -> AsyncIterator[World]:
    async with a_world(clocked_url) as world:
        yield world


def counted(counter: Any, *labels: str) -> float:
    return float(counter.labels(*labels)._value.get())


async def at_once(worlds: Sequence[World], members: Sequence[Member]) -> list[Any]:
    """Checks the members in concurrently, alternating over the processes; returns the answers."""
    asks = (worlds[n % len(worlds)].check_ins.check_in(who) for n, who in enumerate(members))
    return await asyncio.gather(*asks, return_exceptions=True)


# --- check-ins ----------------------------------------------------------------------------------


async def test_a_member_checks_in_once_a_day(world: World) -> None:
    first = await world.check_ins.check_in(ANN)
    again = await world.check_ins.check_in(ANN)

    assert (first.reward, first.already_claimed) == (10, False)
    assert first.streak.current_streak == 1
    assert first.streak.next_milestone == Milestone(2, 20)
    assert again == CheckInResult(first.streak, 0, already_claimed=True)
    assert await world.check_ins.streak(ANN) == first.streak
    assert await world.rewards() == [(3, ANN.wallet, 10, date(2026, 3, 10))]


async def test_fifty_concurrent_requests_in_two_processes_are_one_check_in(
    world: World, clocked_url: str
) -> None:
    claimed, repeated = (counted(telemetry.SITE_CHECKINS, o) for o in ("claimed", "repeated"))
    queued = counted(telemetry.REWARDS_QUEUED, "checkin")
    async with a_world(clocked_url) as other:
        for day in range(2):
            await world.at(NOON + day * ONE_DAY)
            answers = await at_once([world, other], [ANN] * 50)

            fresh = [answer for answer in answers if not answer.already_claimed]
            assert [answer.reward for answer in fresh] == [10]
            assert {answer.streak.current_streak for answer in answers} == {day + 1}
            assert len(await world.rewards()) == day + 1

    assert counted(telemetry.SITE_CHECKINS, "claimed") == claimed + 2
    assert counted(telemetry.SITE_CHECKINS, "repeated") == repeated + 98
    assert counted(telemetry.REWARDS_QUEUED, "checkin") == queued + 2


async def test_a_changed_wallet_allows_no_second_check_in_a_day(world: World) -> None:
    """A member's wallet changes with his e-mail address and by linking."""
    await world.brand()
    await world.check_ins.check_in(ANN)
    moved = replace(ANN, wallet=a_wallet(77))
    await linked(world.pool, ANN, wallet=moved.wallet)
    again = await world.check_ins.check_in(moved)
    assert (again.already_claimed, again.reward) == (True, 0)
    await world.at(NOON + ONE_DAY)
    assert not (await world.check_ins.check_in(moved)).already_claimed


async def test_a_wallet_that_changes_during_a_check_in_gets_no_reward_of_the_old_log_in(
    world: World,
) -> None:
    await world.brand()
    await world.check_ins.check_in(ANN)
    await world.at(NOON + ONE_DAY)
    moved = replace(ANN, wallet=a_wallet(77))
    await linked(world.pool, ANN, wallet=moved.wallet)
    with pytest.raises(CheckInRefused, match="has just changed"):
        await asyncio.wait_for(world.check_ins.check_in(ANN), 30)
    assert len(await world.rewards()) == 1
    assert not (await world.check_ins.check_in(moved)).already_claimed


async def test_each_wallet_has_its_own_streak(world: World) -> None:
    same_wallet = a_member(2, wallet=ANN.wallet)
    await world.meet(same_wallet, a_member(3))
    answers = [await world.check_ins.check_in(who) for who in (ANN, same_wallet, a_member(3))]
    assert [answer.already_claimed for answer in answers] == [False, True, False]


async def test_a_longer_streak_earns_more_until_a_day_is_missed(world: World) -> None:
    answers = await world.check_in_for(4)
    assert [answer.reward for answer in answers] == [10, 10, 15, 15]
    assert [answer.streak.multiplier for answer in answers[1:3]] == [Decimal(1), Decimal("1.55")]

    await world.at(NOON + 5 * ONE_DAY)
    missed = await world.check_ins.streak(ANN)
    assert (missed.current_streak, missed.multiplier) == (0, Decimal(1))
    after = await world.check_ins.check_in(ANN)
    assert (after.streak.current_streak, after.reward) == (1, 10)
    assert after.streak.unclaimed_milestones == (Milestone(2, 20), Milestone(4, 50))


@pytest.mark.parametrize(
    ("zone", "before", "then", "day"),
    [
        # Just before and after the midnights that begin and end days of 23, 25 and 24.5 hours.
        ("Europe/Berlin", "2026-03-28T22:59", "2026-03-28T23:00", "2026-03-29"),
        ("Europe/Berlin", "2026-03-29T21:59", "2026-03-29T22:00", "2026-03-30"),
        ("America/New_York", "2026-11-02T04:59", "2026-11-02T05:00", "2026-11-02"),
        ("America/Havana", "2026-11-02T04:59", "2026-11-02T05:00", "2026-11-02"),
        ("Australia/Lord_Howe", "2026-04-05T13:29", "2026-04-05T13:30", "2026-04-06"),
        ("Asia/Beirut", "2026-03-28T21:59", "2026-03-28T22:00", "2026-03-29"),
    ],
)
async def test_days_follow_the_brands_time_zone_across_clock_changes(
    world: World, zone: str, before: str, then: str, day: str
) -> None:
    await world.brand(time_zone=zone)
    late, early = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (before, then))
    answers = []
    for moment in (late - timedelta(hours=20), late, early, early + timedelta(hours=22)):
        await world.at(moment)
        answers.append(await world.check_ins.check_in(ANN))

    assert [answer.already_claimed for answer in answers] == [False, True, False, True]
    assert answers[-1].streak.current_streak == 2
    earned = [reward[3] for reward in await world.rewards()]
    assert earned == [date.fromisoformat(day) - ONE_DAY, date.fromisoformat(day)]


async def test_a_changed_time_zone_allows_no_second_check_in(world: World) -> None:
    await world.brand(time_zone="Pacific/Kiritimati")
    assert not (await world.check_ins.check_in(ANN)).already_claimed
    await world.brand(time_zone="Etc/GMT+12")

    again = await world.check_ins.check_in(ANN)

    assert (again.already_claimed, again.streak.current_streak) == (True, 1)
    assert len(await world.rewards()) == 1


async def test_a_check_in_without_a_reward_still_counts(world: World) -> None:
    await world.brand(site=SITE | {"checkin_reward": 0}, daily_mint_budget=1)
    queued = counted(telemetry.REWARDS_QUEUED, "checkin")

    answers = await world.check_in_for(2)

    assert [(answer.reward, answer.streak.current_streak) for answer in answers] == [(0, 1), (0, 2)]
    assert await world.rewards() == []
    assert counted(telemetry.REWARDS_QUEUED, "checkin") == queued


async def test_a_committed_check_in_wakes_the_mint_lane_of_this_process(
    world: World,
) -> None:
    notifications: list[int] = []

    async def listen() -> None:
        await world.reward_wakeup.wait(seconds=60)
        notifications.append(len(await world.rewards()))

    listening = asyncio.create_task(listen())
    with capture_logs() as logs:
        await world.check_ins.check_in(ANN)
    await asyncio.wait_for(listening, 20)

    assert notifications == [1]
    assert [(log["event"], log["streak"], log["ltz"]) for log in logs] == [
        ("checkin.claimed", 1, 10)
    ]


# --- the mint limit -----------------------------------------------------------------------------

UNMINTABLE = "This reward is larger than can be minted here. Please tell the site's operator."


async def a_minter(world: World, capacity: int) -> None:
    world.node.mint_capacity = capacity * LTZ
    await value(
        world.pool,
        "INSERT INTO lanes (chain_id, wallet, kind, next_nonce) VALUES ($1, $2, 'mint', 0)",
        CHAIN_ID,
        a_wallet(99),
    )


async def test_a_check_in_above_the_mint_limits_maximum_is_refused_and_not_recorded(
    world: World,
) -> None:
    await a_minter(world, 9)
    with pytest.raises(CheckInRefused, match="larger than can be minted") as refused:
        await world.check_ins.check_in(ANN)

    assert str(refused.value) == UNMINTABLE
    assert await world.rewards() == []
    assert await value(world.pool, "SELECT count(*) FROM check_ins") == 0


async def test_one_nodes_low_mint_limit_refuses_no_check_in(world: World) -> None:
    await a_minter(world, 1_000)
    liar = world.node.sibling()
    liar.mint_capacity = 9 * LTZ
    async with a_fake_pool(liar, world.node) as nodes:
        nodes.prefer(0)
        capacity = MintCapacity(world.pool, nodes.node("http"), CHAIN_ID, LTZ_AT, world.clock)
        check_ins = CheckIns(world.pool, world.wakeups, world.brand_cache, capacity)
        assert (await check_ins.check_in(ANN)).reward == 10


async def test_a_milestone_above_the_mint_limits_maximum_is_refused_and_stays_claimable(
    world: World,
) -> None:
    await a_minter(world, 49)
    await world.check_in_for(4)
    with pytest.raises(MilestoneRefused) as refused:
        await world.check_ins.claim_milestone(ANN, 4)
    assert str(refused.value) == UNMINTABLE
    assert await world.check_ins.claim_milestone(ANN, 2) == 20

    world.clock.now += 1
    world.node.mint_capacity = 50 * LTZ
    assert await world.check_ins.claim_milestone(ANN, 4) == 50


async def test_while_minting_is_disabled_check_ins_and_milestones_are_accepted(
    world: World,
) -> None:
    await a_minter(world, 0)
    await world.check_in_for(2)

    assert await world.check_ins.claim_milestone(ANN, 2) == 20


# --- milestones ---------------------------------------------------------------------------------


async def test_concurrent_requests_claim_a_milestone_once(world: World, clocked_url: str) -> None:
    await world.check_in_for(4)
    queued = counted(telemetry.REWARDS_QUEUED, "milestone")
    claimed = counted(telemetry.SITE_MILESTONES, "claimed")
    async with a_world(clocked_url) as other:
        asks = ([world, other][n % 2].check_ins.claim_milestone(ANN, 4) for n in range(40))
        answers = await asyncio.gather(*asks, return_exceptions=True)

    refusals = {str(answer) for answer in answers if isinstance(answer, MilestoneRefused)}
    assert [answer for answer in answers if isinstance(answer, int)] == [50]
    assert refusals == {"You have claimed this milestone already."}
    assert (await world.rewards())[4:] == [(4, ANN.wallet, 50, date(2026, 3, 13))]
    assert (await world.check_ins.streak(ANN)).unclaimed_milestones == (Milestone(2, 20),)
    assert counted(telemetry.REWARDS_QUEUED, "milestone") == queued + 1
    assert counted(telemetry.SITE_MILESTONES, "claimed") == claimed + 1


async def test_a_reached_milestone_stays_claimable_after_the_streak_is_lost(world: World) -> None:
    await world.check_in_for(2)
    await world.at(NOON + 300 * ONE_DAY)
    await world.reward_wakeup.wait(seconds=0)

    with capture_logs() as logs:
        assert await world.check_ins.claim_milestone(ANN, 2) == 20

    await asyncio.wait_for(world.reward_wakeup.wait(seconds=60), 20)
    assert (await world.rewards())[-1] == (4, ANN.wallet, 20, date(2027, 1, 4))
    assert [(log["event"], log["milestone"], log["ltz"]) for log in logs] == [
        ("milestone.claimed", 2, 20)
    ]


@pytest.mark.parametrize(
    ("days", "reason"),
    [
        (3, "There is no such milestone."),
        (0, "There is no such milestone."),
        (-(10**30), "There is no such milestone."),
        (10**30, "There is no such milestone."),
        (4, NOT_REACHED),
    ],
)
async def test_a_milestone_that_cannot_be_claimed_is_refused_with_the_reason(
    world: World, days: int, reason: str
) -> None:
    refused = counted(telemetry.SITE_MILESTONES, "refused")
    with pytest.raises(MilestoneRefused) as caught:
        await world.check_ins.claim_milestone(ANN, days)
    assert caught.value.message == reason.format(best=0)
    await world.check_in_for(2)
    with pytest.raises(MilestoneRefused) as caught:
        await world.check_ins.claim_milestone(ANN, days)
    assert caught.value.message == reason.format(best=2)
    assert counted(telemetry.SITE_MILESTONES, "refused") == refused + 2
    assert [reward[0] for reward in await world.rewards()] == [3, 3]


async def test_a_milestone_removed_from_the_configuration_does_not_exist(world: World) -> None:
    await world.check_in_for(2)
    await world.brand(site=SITE | {"milestones": {4: 50}})
    with pytest.raises(MilestoneRefused):
        await world.check_ins.claim_milestone(ANN, 2)
    assert (await world.check_ins.streak(ANN)).unclaimed_milestones == ()


# --- the member's own share ---------------------------------------------------------------------


async def own(world: World, table: str) -> list[tuple[Any, ...]]:
    async with session(world.pool) as connection:
        rows = await connection.fetch(
            f"SELECT site_user_id, ltz, own_ltz FROM {table} ORDER BY created_at"
        )
    return [tuple(row) for row in rows]


async def test_a_member_who_continues_anothers_streak_may_spend_only_the_share_of_his_own_days(
    world: World,
) -> None:
    """The wallet gets the whole reward; less of it counts as earned by the member himself."""
    impostor = a_member(2, wallet=ANN.wallet)
    await world.meet(impostor)
    await world.check_in_for(2)
    for day in range(2, 6):
        await world.at(NOON + day * ONE_DAY)
        assert (await world.check_ins.check_in(impostor)).reward == 15

    assert await own(world, "check_ins") == [
        (1, 10, 10),
        (1, 10, 10),
        (2, 15, 10),
        (2, 15, 10),
        (2, 15, 15),
        (2, 15, 15),
    ]


async def test_a_milestone_counts_as_earned_only_for_a_member_whose_own_days_reach_it(
    world: World,
) -> None:
    impostor = a_member(2, wallet=ANN.wallet)
    await world.meet(impostor)
    await world.check_in_for(4)
    await world.at(NOON + 4 * ONE_DAY)
    await world.check_ins.check_in(impostor)

    assert await world.check_ins.claim_milestone(impostor, 4) == 50
    assert await world.check_ins.claim_milestone(ANN, 2) == 20

    assert await own(world, "milestone_claims") == [(2, 50, 0), (1, 20, 20)]


# --- refusals -----------------------------------------------------------------------------------


async def test_concurrent_check_ins_do_not_exceed_the_brands_budget(
    world: World, clocked_url: str
) -> None:
    await world.brand(daily_mint_budget=55)
    refused = counted(telemetry.SITE_CHECKINS, "refused")
    crowd = [a_member(number) for number in range(1, 21)]
    await world.meet(*crowd)
    async with a_world(clocked_url) as other:
        await other.brand(daily_mint_budget=55)
        answers = await at_once([world, other], crowd)

    assert [answer.reward for answer in answers if isinstance(answer, CheckInResult)] == [10] * 5
    assert {str(answer) for answer in answers if isinstance(answer, LtzdError)} == {
        "Today's rewards have all been given out. Please come back tomorrow."
    }
    assert counted(telemetry.SITE_CHECKINS, "refused") == refused + 15
    assert await value(world.pool, "SELECT used FROM brand_usage") == 50
    assert await value(world.pool, "SELECT count(*) FROM check_ins") == 5

    happy = next(n for n, answer in enumerate(answers) if isinstance(answer, CheckInResult))
    assert (await world.check_ins.check_in(crowd[happy])).already_claimed
    await world.at(NOON + ONE_DAY)
    assert (await world.check_ins.check_in(crowd[happy])).reward == 10


async def test_a_milestone_waits_while_the_budget_is_spent(world: World) -> None:
    await world.check_in_for(4)
    await world.brand(daily_mint_budget=49)
    with pytest.raises(MilestoneRefused, match="come back tomorrow"):
        await world.check_ins.claim_milestone(ANN, 4)
    assert (await world.check_ins.streak(ANN)).unclaimed_milestones[-1] == Milestone(4, 50)

    await world.brand(daily_mint_budget=50)
    assert await world.check_ins.claim_milestone(ANN, 4) == 50
    await world.meet(a_member(2))
    with pytest.raises(CheckInRefused, match="come back tomorrow"):
        await world.check_ins.check_in(a_member(2))


async def test_a_brand_with_automation_disabled_gives_no_rewards(world: World) -> None:
    await world.check_in_for(2)
    await world.brand(automation=False)
    await world.at(NOON + 2 * ONE_DAY)

    with pytest.raises(CheckInRefused, match="switched off"):
        await world.check_ins.check_in(ANN)
    with pytest.raises(MilestoneRefused, match="switched off"):
        await world.check_ins.claim_milestone(ANN, 2)

    assert (await world.check_ins.streak(ANN)).current_streak == 2
    assert len(await world.rewards()) == 2


async def test_without_a_site_check_ins_milestones_and_streaks_are_refused(world: World) -> None:
    await world.brand(site=None)
    for asking in (
        world.check_ins.check_in(ANN),
        world.check_ins.claim_milestone(ANN, 2),
        world.check_ins.streak(ANN),
    ):
        with pytest.raises(SiteUnknown):
            await asking


async def test_without_a_database_check_ins_and_milestones_are_unavailable(world: World) -> None:
    unavailable = counted(telemetry.SITE_CHECKINS, "unavailable")
    await world.pool.close()
    with pytest.raises(DatabaseUnavailable):
        await world.check_ins.check_in(ANN)
    with pytest.raises(DatabaseUnavailable):
        await world.check_ins.claim_milestone(ANN, 2)
    assert counted(telemetry.SITE_CHECKINS, "unavailable") == unavailable + 1


async def test_other_processes_learn_of_a_check_in_after_its_commit(
    world: World, database_url: str
) -> None:
    async with announced(database_url, world.wakeups, REWARDS):
        await world.check_ins.check_in(ANN)


async def test_other_processes_learn_of_a_milestone_after_its_commit(
    world: World, database_url: str
) -> None:
    await world.check_in_for(2)
    await spent_announcements(world, database_url)
    async with announced(database_url, world.wakeups, REWARDS):
        await world.check_ins.claim_milestone(ANN, 2)


async def spent_announcements(world: World, url: str) -> None:
    """Sends what was announced so far, so that a later announcement is one of its own."""
    async with notifications(url, REWARDS) as payloads, running(world.wakeups.listen()):
        await until_count(payloads, 1)
