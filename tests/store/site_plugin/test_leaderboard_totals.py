"""Earnings equal the sums of minted rewards through reorgs and rebuilds; leaderboards read them."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from typing import Any, get_args
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ltzd.errors import DatabaseUnavailable
from ltzd.rules.site_plugin.leaderboards import ALL_TIME, Metric, Period, first_day
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import mint_facts
from ltzd.store.site_plugin import leaderboard_totals
from ltzd.store.site_plugin.leaderboard_totals import LeaderboardTotals
from ltzd.values import Address
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.rows.earnings import PAYMENT, TODAY, Earned, Earnings
from tests.support.waiting import until

OTHER_BRAND = Address(b"\xb1" * 20)
ANN, BOB, CID, DAN = a_wallet(1), a_wallet(2), a_wallet(3), a_wallet(4)
DAYS = [date(2026, 2, 22), date(2026, 2, 28), date(2026, 3, 1), date(2026, 3, 2)]
"""Three weeks and two months."""

Key = tuple[Address, str, date, Address]
"""Brand, period, its first day, wallet."""


@pytest.fixture
def earnings(pool: Pool) -> Earnings:
    return Earnings(pool)


async def add_brand(pool: Pool, brand: Address = BRAND) -> None:
    async with session(pool) as connection:
        await connection.execute(
            "INSERT INTO brands (id, name, configuration, revision) VALUES ($1, '', '{}', 1) "
            "ON CONFLICT DO NOTHING",
            brand,
        )


async def top(
    pool: Pool,
    metric: Metric = "ltz_earned",
    period: Period = "all",
    limit: int = 10,
    brand: Address = BRAND,
    day: date = TODAY,
) -> LeaderboardTotals:
    await add_brand(pool, brand)
    async with session(pool) as connection:
        return await leaderboard_totals.read_top(
            connection, brand, metric, period, first_day(period, day), limit
        )


async def ranked(pool: Pool, *args: Any, **more: Any) -> dict[Address, int]:
    board = await top(pool, *args, **more)
    return {place.wallet: place.value for place in board.places}


# --- random sequences ---------------------------------------------------------------------------

rewards_owed = st.builds(
    Earned,
    wallet=st.sampled_from([ANN, BOB]),
    ltz=st.integers(1, 9),
    kind=st.sampled_from([1, 1, PAYMENT, 3, 4]),
    brand=st.sampled_from([BRAND, BRAND, OTHER_BRAND]),
    day=st.sampled_from(DAYS),
)
steps = st.lists(
    st.one_of(
        # The number of rewards that the next block mints, or of blocks to undo.
        st.tuples(st.just("mint"), st.integers(0, 4)),
        st.tuples(st.just("undo"), st.integers(0, 4)),
        # A rebuild, which may find that this number of blocks is lost.
        st.tuples(st.just("read again"), st.just(0)),
        st.tuples(st.just("lose and read again"), st.integers(0, 3)),
    ),
    max_size=10,
)


class Chain:
    """Blocks, numbered from 1, with the rewards minted in them."""

    def __init__(self, earnings: Earnings, owed: list[UUID]) -> None:
        self._earnings = earnings
        self._unminted = owed
        self._blocks: list[list[UUID]] = []
        self._branch = 0

    async def step(self, kind: str, number: int) -> None:
        match kind:
            case "mint":
                minted, self._unminted = self._unminted[:number], self._unminted[number:]
                self._blocks.append(minted)
                await self._read(len(self._blocks))
            case "undo":
                self._forget(number)
                await self._earnings.undo(len(self._blocks))
            case "read again":
                await self._rebuild()
            case "lose and read again":
                self._forget(number)
                await self._rebuild()

    def _forget(self, number: int) -> None:
        """Removes the newest blocks; their rewards are the next to be minted."""
        kept = max(0, len(self._blocks) - number)
        self._branch += 1
        self._unminted = [id_ for block in self._blocks[kept:] for id_ in block] + self._unminted
        del self._blocks[kept:]

    async def _rebuild(self) -> None:
        await self._earnings.rebuild(self._blocks, f" {self._branch}")

    async def _read(self, number: int) -> None:
        block = self._blocks[number - 1]
        assert await self._earnings.mint(number, *block, branch=f" {self._branch}") == len(block)

    def minted(self) -> Iterator[Earned]:
        for block in self._blocks:
            for id_ in block:
                yield self._earnings.owed[id_]


def naively(minted: Iterator[Earned]) -> dict[Key, tuple[int, int, int]]:
    """Sums LTZ, rewards and bought LTZ from the rewards."""
    sums: defaultdict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    for reward in minted:
        periods: tuple[Period, ...] = ("all",) if reward.kind == PAYMENT else get_args(Period)
        for period in periods:
            at = sums[reward.brand, period, first_day(period, reward.day), reward.wallet]
            if reward.kind == PAYMENT:
                at[2] += reward.ltz
            else:
                at[0] += reward.ltz
                at[1] += 1
    return {key: (at[0], at[1], at[2]) for key, at in sums.items()}


async def stored(pool: Pool) -> dict[Key, tuple[int, int, int]]:
    """Returns the rows of earnings without the zero rows that an undo leaves."""
    async with session(pool) as connection:
        rows = await connection.fetch("SELECT * FROM earnings WHERE ltz + rewards + bought > 0")
    return {
        (row["brand_id"], row["period"], row["starts"], row["wallet"]): (
            row["ltz"],
            row["rewards"],
            row["bought"],
        )
        for row in rows
    }


async def totals(pool: Pool) -> dict[tuple[Address, str, date], int]:
    async with session(pool) as connection:
        rows = await connection.fetch(
            "SELECT brand_id, period, starts, ranked FROM leaderboard_totals "
            "WHERE board = 'earnings' AND slot = 0 AND ranked <> 0"
        )
    return {(row["brand_id"], row["period"], row["starts"]): row["ranked"] for row in rows}


@given(st.lists(rewards_owed, max_size=8), steps)
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_earnings_equal_the_sums_of_minted_rewards_through_undos_and_rebuilds(
    pool: Pool, owed: list[Earned], wanted: list[tuple[str, int]]
) -> None:
    earnings = Earnings(pool)
    async with session(pool) as connection:
        await connection.execute(
            "DELETE FROM rewards; DELETE FROM mints; DELETE FROM earnings; "
            "DELETE FROM leaderboard_totals"
        )
    chain = Chain(earnings, await earnings.owe(*owed))
    for kind, number in wanted:
        await chain.step(kind, number)

        expected = naively(chain.minted())
        assert await stored(pool) == expected
        assert await totals(pool) == Counter(
            key[:3] for key, (_, rewards, _) in expected.items() if rewards
        )


# --- what counts --------------------------------------------------------------------------------


async def test_rewards_count_in_the_week_and_month_of_their_day_and_for_all_time(
    pool: Pool, earnings: Earnings
) -> None:
    await earnings.earn(*(Earned(a_wallet(index), day=day) for index, day in enumerate(DAYS)))

    in_week = await ranked(pool, period="week", day=date(2026, 2, 25))
    in_month = await ranked(pool, period="month", day=date(2026, 2, 1))

    assert set(in_week) == {a_wallet(1), a_wallet(2)}
    assert set(in_month) == {a_wallet(0), a_wallet(1)}
    assert len(await ranked(pool, period="all")) == len(DAYS)


async def test_a_month_that_begins_on_a_monday_and_its_first_week_are_counted_apart(
    pool: Pool, earnings: Earnings
) -> None:
    first_week, second_week = date(2026, 6, 2), date(2026, 6, 9)
    for block, day in enumerate((first_week, second_week, first_week), 1):
        await earnings.earn(Earned(ANN, 5, day=day), block=block)

    assert await ranked(pool, period="week", day=first_week) == {ANN: 10}
    assert await ranked(pool, period="month", day=first_week) == {ANN: 15}


async def test_the_activity_board_counts_rewards_and_the_ltz_board_their_ltz(
    pool: Pool, earnings: Earnings
) -> None:
    await earnings.earn(Earned(ANN, 5, 1), Earned(ANN, 5, 3), Earned(ANN, 5, 4), Earned(BOB, 100))

    assert await ranked(pool, "activity") == {ANN: 3, BOB: 1}
    assert await ranked(pool, "ltz_earned") == {BOB: 100, ANN: 15}


async def test_bought_ltz_are_counted_for_all_time_and_are_not_ranked(
    pool: Pool, earnings: Earnings
) -> None:
    await earnings.earn(Earned(ANN, 1_000, PAYMENT), Earned(BOB, 1))
    everywhere = [(metric, period) for metric in get_args(Metric) for period in get_args(Period)]

    for metric, period in everywhere:
        board = await top(pool, metric, period)
        assert ANN not in {place.wallet for place in board.places}
        assert board.total == len(board.places)
    assert (await stored(pool))[BRAND, "all", ALL_TIME, ANN] == (0, 0, 1_000)

    await earnings.earn(Earned(ANN, 2), block=2)
    assert await ranked(pool) == {ANN: 2, BOB: 1}
    assert (await top(pool)).total == 2
    await earnings.undo(1)
    assert await ranked(pool) == {BOB: 1}
    assert (await top(pool)).total == 1
    assert (await stored(pool))[BRAND, "all", ALL_TIME, ANN] == (0, 0, 1_000)


async def test_a_reorg_that_moves_a_mint_to_another_block_counts_it_once(
    pool: Pool, earnings: Earnings
) -> None:
    (reward,) = await earnings.earn(Earned(ANN))
    await earnings.undo(0)
    assert ((await top(pool)).places, (await top(pool)).total) == ((), 0)

    assert await earnings.mint(2, reward, branch="'") == 1

    assert await ranked(pool) == {ANN: 100}
    assert (await top(pool)).total == 1


@pytest.mark.parametrize("is_undone", [False, True])
async def test_two_writers_of_the_same_earnings_lose_nothing(
    pool: Pool, earnings: Earnings, is_undone: bool
) -> None:
    """A lane that links lost mints writes beside the indexer: one waits, and may have to repeat."""
    await earnings.earn(Earned(ANN, 1), block=1)
    second = await earnings.owe(Earned(ANN, 20))
    third = await earnings.owe(Earned(ANN, 300))
    if is_undone:
        await earnings.mint(3, *third)

    async def write() -> None:
        await (earnings.undo(2) if is_undone else earnings.mint(3, *third))

    async with transaction(pool) as connection:
        await mint_facts.insert_mints(connection, earnings.mints(2, second))
        writing = asyncio.create_task(write())

        async def waits() -> bool:
            return bool(await connection.fetchval(WAITING))

        await until(waits)
    try:
        await writing
    except DatabaseUnavailable:
        await write()
    assert await ranked(pool) == {ANN: 1 + 20 if is_undone else 1 + 20 + 300}


WAITING = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


async def test_a_mint_without_a_reward_earns_nothing(pool: Pool, earnings: Earnings) -> None:
    (reward,) = await earnings.owe(Earned(ANN))
    earnings.owed[reward] = Earned(ANN, 101)

    assert await earnings.mint(1, reward) == 0

    assert (await stored(pool), await totals(pool)) == ({}, {})


# --- boards -------------------------------------------------------------------------------------


async def test_equal_values_are_ordered_by_wallet(pool: Pool, earnings: Earnings) -> None:
    for block, wallet in enumerate([CID, ANN, BOB], 1):
        await earnings.earn(Earned(wallet, 7), block=block)
    await earnings.earn(Earned(a_wallet(9), 8), block=4)

    for metric in ("ltz_earned", "activity"):
        board = await top(pool, metric)
        ties = [place.wallet for place in board.places if place.wallet != a_wallet(9)]
        assert ties == [ANN, BOB, CID]
        for limit in (1, 2, 3, 4):
            assert (await top(pool, metric, limit=limit)).places == board.places[:limit]
    assert list(await ranked(pool)) == [a_wallet(9), ANN, BOB, CID]


async def test_a_board_is_limited_and_counts_all_ranked_wallets(
    pool: Pool, earnings: Earnings
) -> None:
    await earnings.earn(*(Earned(a_wallet(number), number) for number in range(1, 13)))

    board = await top(pool, limit=5)

    assert [place.value for place in board.places] == [12, 11, 10, 9, 8]
    assert board.total == 12
    assert len((await top(pool, limit=100)).places) == 12


async def test_a_brands_board_shows_no_other_brands_earnings(
    pool: Pool, earnings: Earnings
) -> None:
    await earnings.earn(
        Earned(ANN, 1), Earned(ANN, 50, brand=OTHER_BRAND), Earned(BOB, 60, brand=OTHER_BRAND)
    )
    await a_member(pool, OTHER_BRAND, "ann.elsewhere", ANN)

    board = await top(pool)

    assert [(place.wallet, place.value, place.username) for place in board.places] == [
        (ANN, 1, None)
    ]
    assert board.total == 1
    assert await ranked(pool, brand=OTHER_BRAND) == {BOB: 60, ANN: 50}


async def test_streaks_are_ranked_by_their_longest_in_the_period_and_counted_in_all_slots(
    pool: Pool,
) -> None:
    async with session(pool) as connection:
        await connection.executemany(
            """
            INSERT INTO leaderboard_streaks (brand_id, period, starts, wallet, days)
            VALUES ($1, $2, $3, $4, $5)
            """,
            [
                (BRAND, "all", ALL_TIME, ANN, 4),
                (BRAND, "all", ALL_TIME, BOB, 9),
                (BRAND, "week", first_day("week", TODAY), ANN, 2),
                (OTHER_BRAND, "all", ALL_TIME, CID, 99),
            ],
        )
        await connection.executemany(
            """
            INSERT INTO leaderboard_totals (brand_id, board, period, starts, slot, ranked)
            VALUES ($1, $2, 'all', $3, $4, $5)
            """,
            [
                (BRAND, "streaks", ALL_TIME, 3, 1),
                (BRAND, "streaks", ALL_TIME, 15, 1),
                (BRAND, "earnings", ALL_TIME, 0, 40),
            ],
        )

    assert await ranked(pool, "streak") == {BOB: 9, ANN: 4}
    assert (await top(pool, "streak", limit=1)).total == 2
    assert await ranked(pool, "streak", "week") == {ANN: 2}


# --- identities ---------------------------------------------------------------------------------


async def a_member(
    pool: Pool, brand: Address, username: str, wallet: Address, *, linked: bool = False
) -> UUID:
    """Saves a member of the brand's site who was seen just now."""
    id_: UUID = await value(
        pool,
        """
        INSERT INTO site_members (brand_id, host, site_user_id, username, email_key, user_id,
                                  wallet, subject, linked_at)
        SELECT $1, 'site.example', count(*) + 1, $2, $2, gen_random_uuid(), $3,
               CASE WHEN $4 THEN 'subject' END, CASE WHEN $4 THEN now() END
          FROM site_members
        RETURNING user_id
        """,
        brand,
        username,
        wallet,
        linked,
    )
    return id_


async def a_user(pool: Pool, name: str, wallet: Address) -> UUID:
    id_: UUID = await value(
        pool,
        """
        INSERT INTO users (id, email_key, identity_subject, wallet)
        VALUES (gen_random_uuid(), $1, '', $2)
        RETURNING id
        """,
        name,
        wallet,
    )
    return id_


async def test_a_wallet_is_shown_as_its_oldest_user_and_not_as_a_linked_member(
    pool: Pool, earnings: Earnings
) -> None:
    await earnings.earn(*(Earned(wallet, wallet[-1]) for wallet in (ANN, BOB, CID)))
    oldest = await a_user(pool, "ann", ANN)
    await a_user(pool, "ann, too", ANN)
    await a_member(pool, BRAND, "ann", ANN)
    await a_member(pool, BRAND, "linked", BOB, linked=True)
    # Bob is on the board with the wallet of his own address, under his own identifier.
    own = await a_user(pool, "bob", DAN)
    await earnings.earn(Earned(DAN, 1))

    board = await top(pool)

    assert {place.wallet: place.user_id for place in board.places} == {
        ANN: oldest,
        BOB: None,
        CID: None,
        DAN: own,
    }


async def test_a_wallets_username_is_the_one_seen_last(pool: Pool, earnings: Earnings) -> None:
    await earnings.earn(Earned(ANN))
    for name in ("first", "second", "third"):
        await a_member(pool, BRAND, name, ANN)
    await value(pool, "UPDATE site_members SET seen_at = now() + '1 s' WHERE username = 'second'")
    for brand, wallet in ((BRAND, BOB), (OTHER_BRAND, ANN)):
        await a_member(pool, brand, "a stranger", wallet)
    await value(pool, "UPDATE site_members SET seen_at = now() + '2 s' WHERE username ~ 'stranger'")

    assert [place.username for place in (await top(pool)).places] == ["second"]


# --- query plans with many rows -----------------------------------------------------------------

MANY = 20_000
READ: dict[Metric, str] = {
    "ltz_earned": "earnings_by_ltz",
    "activity": "earnings_by_rewards",
    "streak": "leaderboard_streaks_by_days",
}


async def fill(pool: Pool) -> None:
    """Inserts two brands with many wallets each on all leaderboards of the week."""
    statements = (
        """
        INSERT INTO earnings (brand_id, period, starts, wallet, ltz, rewards)
        SELECT $1, 'week', $2, substring(sha256(int4send(n)) FOR 20), n, n % 7 + 1
          FROM generate_series(1, $3::int) AS n
        """,
        """
        INSERT INTO leaderboard_streaks (brand_id, period, starts, wallet, days)
        SELECT $1, 'week', $2, substring(sha256(int4send(n)) FOR 20), n % 7 + 1
          FROM generate_series(1, $3::int) AS n
        """,
    )
    async with session(pool) as connection:
        for statement in statements:
            for brand in (BRAND, OTHER_BRAND):
                await connection.execute(statement, brand, first_day("week", TODAY), MANY)
        await connection.execute("ANALYZE")


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def rows_read(node: dict[str, Any]) -> float:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


async def plan_of(pool: Pool, sql: str, *arguments: object) -> list[dict[str, Any]]:
    async with session(pool) as connection:
        (row,) = await connection.fetch("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, *arguments)
    (plan,) = json.loads(row[0])
    return list(nodes(plan["Plan"]))


MOVE_REWARDS = f"""
WITH turned AS (
  SELECT brand_id, kind, wallet, ltz, earned_on, 1 AS sign FROM rewards WHERE id = ANY($1::uuid[])
), {leaderboard_totals.MOVE}
SELECT {leaderboard_totals.HAS_MOVED_ALL}
"""


async def test_boards_and_mints_read_only_the_rows_they_return_or_change(
    pool: Pool, earnings: Earnings
) -> None:
    await add_brand(pool)
    await fill(pool)
    week = first_day("week", TODAY)
    for metric, index in READ.items():
        plan = await plan_of(pool, leaderboard_totals.TOP, BRAND, "week", week, 10, metric)
        assert not [node for node in plan if node["Node Type"] == "Seq Scan"]
        (read,) = (node for node in plan if node.get("Index Name") == index)
        assert rows_read(read) == 10
        assert max(map(rows_read, plan)) <= 10

    known = await value(pool, "SELECT wallet FROM earnings WHERE ltz = 17 AND brand_id = $1", BRAND)
    rewards = await earnings.owe(Earned(known), Earned(ANN))
    plan = await plan_of(pool, MOVE_REWARDS, rewards)
    assert not [node for node in plan if node["Node Type"] == "Seq Scan"]
    assert max(map(rows_read, plan)) <= len(rewards) * len(get_args(Period))
