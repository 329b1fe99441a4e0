"""Leaderboards: the brand's current periods, and identifiers that reveal no e-mail address."""

import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import get_args
from uuid import UUID, uuid4

import asyncpg
import pytest

from ltzd.actions.event_handler.batch_decision import EventCheck, PreparedEvent, decide_all
from ltzd.actions.site_plugin.leaderboards import LONGEST_SHOWN, LeaderboardEntry, Leaderboards
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.site_plugin.leaderboards import Period
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Pool, open_pool, session
from ltzd.store.event_handler import events
from ltzd.store.event_handler.events import ClaimSnapshot, EventRow, NewEvent
from ltzd.store.replica import ReplicaReads
from ltzd.store.retention import erasure
from ltzd.store.users.users import User
from ltzd.values import Address
from tests.support.rows.core import a_wallet, value
from tests.support.rows.earnings import Earned, Earnings
from tests.support.surfaces.event_action import SEALER, a_brand

ANN, BOB = a_wallet(1), a_wallet(2)
OTHER = "0x" + "b1" * 20
HOST = "site.example"
PERIODS: tuple[Period, ...] = get_args(Period)


async def apply(pool: Pool, brand: Brand) -> Brand:
    async with session(pool) as connection:
        await brands.apply(connection, brand, SEALER)
    return brand


async def key_of(pool: Pool, brand: Brand) -> bytes:
    key: bytes = await value(pool, "SELECT member_key FROM brands WHERE id = $1", brand.address)
    return key


async def entries(pool: Pool, brand: Brand, host: str = HOST) -> tuple[LeaderboardEntry, ...]:
    boards = Leaderboards(ReplicaReads(pool))
    return (await boards.read(brand, host, "ltz_earned", "all", 10)).entries


async def values(pool: Pool, brand: Brand, period: Period = "all") -> list[int]:
    board = await Leaderboards(ReplicaReads(pool)).read(brand, HOST, "ltz_earned", period, 10)
    assert board.total == len(board.entries)
    return [entry.value for entry in board.entries]


async def a_member(
    pool: Pool, brand: Brand, username: str, wallet: Address = ANN, user: UUID | None = None
) -> UUID:
    user = user or uuid4()
    await value(
        pool,
        """
        INSERT INTO site_members (brand_id, host, site_user_id, username, email_key, user_id,
                                  wallet)
        SELECT $1, 'site.example', count(*) + 1, $2, 'ann@shop.example', $3, $4 FROM site_members
        """,
        brand.address,
        username,
        user,
        wallet,
    )
    return user


async def link_first_member(pool: Pool, brand: Brand, user: UUID, wallet: Address = ANN) -> None:
    await value(
        pool,
        """
        WITH link AS (
          INSERT INTO site_links (id, brand_id, host, site_user_id, user_id, subject, wallet,
                                  daily_allowance, expires_at)
          VALUES (gen_random_uuid(), $1, 'site.example', 1, $2, 'did:ann', $3, 0,
                  now() + interval '1 day')
          RETURNING id)
        UPDATE site_members SET link_id = link.id FROM link WHERE site_user_id = 1
        """,
        brand.address,
        user,
        wallet,
    )


async def a_user(pool: Pool, wallet: Address = ANN) -> UUID:
    user = uuid4()
    await value(
        pool,
        "INSERT INTO users (id, email_key, identity_subject, wallet) "
        "VALUES ($1, 'ann@shop.example', '', $2)",
        user,
        wallet,
    )
    return user


def identifier(key: bytes, who: bytes) -> str:
    return hmac.new(key, HOST.encode() + b"\0" + who, hashlib.sha256).hexdigest()[:32]


async def test_a_board_has_ranks_from_1_and_says_how_many_are_ranked(pool: Pool) -> None:
    brand = await apply(pool, a_brand())
    await Earnings(pool).earn(*(Earned(a_wallet(number), number) for number in range(1, 6)))

    board = await Leaderboards(ReplicaReads(pool)).read(brand, HOST, "ltz_earned", "all", 3)

    assert [(entry.rank, entry.value) for entry in board.entries] == [(1, 5), (2, 4), (3, 3)]
    assert board.total == 5


async def test_a_leaderboard_without_members_is_empty(pool: Pool) -> None:
    board = await Leaderboards(ReplicaReads(pool)).read(
        await apply(pool, a_brand()), HOST, "streak", "week", 10
    )

    assert (board.entries, board.total) == ((), 0)


# --- who is named -------------------------------------------------------------------------------


async def test_user_identifiers_are_keyed_by_brand_and_cannot_be_joined_across_brands(
    pool: Pool,
) -> None:
    brand, other = await apply(pool, a_brand()), await apply(pool, a_brand(id=OTHER))
    await Earnings(pool).earn(Earned(ANN), Earned(ANN, brand=other.address))
    user = await a_user(pool)

    (here,), (there,) = await entries(pool, brand), await entries(pool, other)

    assert here.user_identifier == identifier(await key_of(pool, brand), user.bytes)
    assert there.user_identifier == identifier(await key_of(pool, other), user.bytes)
    assert here.user_identifier != there.user_identifier
    assert here.username != there.username
    assert (here,) == await entries(pool, brand), "an identifier does not change"


async def test_user_identifiers_cannot_be_joined_across_sites_of_a_brand(pool: Pool) -> None:
    brand = await apply(pool, a_brand())
    await Earnings(pool).earn(Earned(ANN))
    await a_user(pool)

    (here,), (there,) = await entries(pool, brand), await entries(pool, brand, "shop.example")

    assert here.user_identifier != there.user_identifier
    assert here.username != there.username


@pytest.mark.parametrize("days", [-40, -8, 8, 40])
async def test_the_databases_clock_decides_which_period_is_the_current_one(
    pool: Pool, days: int
) -> None:
    brand = await apply(pool, a_brand())
    today = await value(pool, "SELECT (now() AT TIME ZONE 'UTC')::date")
    await Earnings(pool).earn(Earned(ANN, 2, day=today))
    boards = Leaderboards(ReplicaReads(pool), now=lambda: datetime.now(UTC) + timedelta(days=days))

    for period in PERIODS:
        board = await boards.read(brand, HOST, "ltz_earned", period, 10)
        assert [entry.value for entry in board.entries] == [2], period


async def test_a_wallet_without_a_user_is_identified_by_itself(pool: Pool) -> None:
    """A member who was linked to it is also on the board with the wallet of his own address."""
    brand = await apply(pool, a_brand())
    await Earnings(pool).earn(Earned(ANN, 2), Earned(BOB, 1))
    await a_member(pool, brand, "ann")
    key = await key_of(pool, brand)

    first, second = await entries(pool, brand)

    assert first.user_identifier == identifier(key, ANN)
    assert first.username == "ann"
    assert second.user_identifier == identifier(key, BOB)
    assert second.username == f"member-{second.user_identifier[:6]}"


async def test_the_owners_member_is_named_however_late_another_one_types_the_address(
    pool: Pool,
) -> None:
    brand = await apply(pool, a_brand())
    await Earnings(pool).earn(Earned(ANN, 2))
    ann = await a_member(pool, brand, "ann")
    await a_member(pool, brand, "mallory", user=ann)
    (entry,) = await entries(pool, brand)
    assert entry.username == "mallory", "seen last, while nobody has shown to own the wallet"

    await link_first_member(pool, brand, ann)

    (entry,) = await entries(pool, brand)
    assert entry.username == "ann"


@pytest.mark.parametrize(
    "username",
    [
        "ann@shop.example",
        "@ann",
        "",
        "a" * 64 + "@shop.example",
        "ann\uff20shop.example",
        "ann\ufe6bshop.example",
    ],
    ids=ascii,
)
async def test_an_e_mail_address_is_never_shown(pool: Pool, username: str) -> None:
    brand = await apply(pool, a_brand())
    await Earnings(pool).earn(Earned(ANN))
    await a_user(pool)
    await a_member(pool, brand, username)

    (entry,) = await entries(pool, brand)

    assert entry.username == f"member-{entry.user_identifier[:6]}"
    assert "@" not in repr(entry)


@pytest.mark.parametrize(
    ("username", "shown"),
    [("x" * 320, "x" * LONGEST_SHOWN), ("\uff21nn \u2460", "\uff21nn \u2460")],
    ids=("long", "wide"),
)
async def test_a_username_is_shown_up_to_a_maximum_length(
    pool: Pool, username: str, shown: str
) -> None:
    brand = await apply(pool, a_brand())
    await Earnings(pool).earn(Earned(ANN))
    await a_user(pool)
    await a_member(pool, brand, username)

    (entry,) = await entries(pool, brand)

    assert entry.username == shown


async def test_the_board_does_not_tell_who_has_asked_for_an_erasure(pool: Pool) -> None:
    brand = await apply(pool, a_brand())
    await Earnings(pool).earn(Earned(ANN))
    user = await a_user(pool)
    await a_member(pool, brand, "ann", user=user)
    (named,) = await entries(pool, brand)
    async with session(pool) as connection:
        assert await erasure.end_memberships(connection, user) == 1

    (erased,) = await entries(pool, brand)

    assert named.username == "ann"
    assert erased.username == f"member-{erased.user_identifier[:6]}"


async def test_a_username_at_one_brands_site_is_not_shown_at_another_brands(pool: Pool) -> None:
    brand, other = await apply(pool, a_brand()), await apply(pool, a_brand(id=OTHER))
    await Earnings(pool).earn(Earned(ANN))
    await a_member(pool, other, "ann")

    (entry,) = await entries(pool, brand)

    assert entry.username.startswith("member-")


# --- when it is ---------------------------------------------------------------------------------

SUNDAY = datetime(2026, 3, 1, 11, tzinfo=UTC)
"""In Kiritimati it is Monday, the 2nd of March, and at GMT-12 Saturday, the 28th of February."""
WEEKS_AND_MONTHS = {
    "UTC": ([date(2026, 2, 23), date(2026, 2, 28), date(2026, 3, 1)], [1, 2]),
    "Pacific/Kiritimati": ([date(2026, 3, 2)], [1, 2]),
    "Etc/GMT+12": ([date(2026, 2, 23), date(2026, 2, 28), date(2026, 3, 1)], [22, 23, 28]),
}


@asynccontextmanager
async def database_at(url: str, now: datetime) -> AsyncIterator[Pool]:
    """A pool whose connections see a clock that stands still at `now`."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            f"""
            CREATE SCHEMA clock;
            CREATE FUNCTION clock.now() RETURNS timestamptz STABLE LANGUAGE sql
                AS $$ SELECT timestamptz '{now.isoformat()}' $$;
            ALTER DATABASE {url.rpartition("/")[2]} SET search_path = clock, pg_catalog, public
            """
        )
    finally:
        await connection.close()
    pool = await open_pool(url)
    try:
        yield pool
    finally:
        pool.terminate()


@pytest.mark.parametrize("zone", WEEKS_AND_MONTHS)
async def test_the_week_and_the_month_are_those_of_the_brands_time_zone(
    database_url: str, zone: str
) -> None:
    days = [date(2026, 2, day) for day in (22, 23, 28)] + [date(2026, 3, day) for day in (1, 2)]
    in_week, in_month = WEEKS_AND_MONTHS[zone]
    async with database_at(database_url, SUNDAY) as pool:
        brand = await apply(pool, a_brand(time_zone=zone))
        # Each day has a reward of its own, so a total shows which days it holds.
        await Earnings(pool).earn(*(Earned(a_wallet(day.day), day.day, day=day) for day in days))

        assert set(await values(pool, brand, "week")) == {day.day for day in in_week}
        assert set(await values(pool, brand, "month")) == set(in_month)
        assert set(await values(pool, brand, "all")) == {day.day for day in days}


def an_event(brand: Brand, wallet: Address, name: str = "ann") -> PreparedEvent:
    rule = brand.rule_of("account_creation")
    assert rule is not None
    user = User(uuid4(), f"{name}@shop.example", name, wallet)
    event = EventRow(
        id=uuid4(),
        brand_id=brand.address,
        event_type=rule.type,
        email=user.email_key,
        user_id=user.id,
        domain="shop.example",
        source=None,
        user_identifier=None,
        metadata={},
        ltz=100,
        wallet=wallet,
    )
    key = (brand.address, rule.type, user.email_key)
    return PreparedEvent(event, user, False, EventCheck(key, brand, rule, 100, False, False, None))


async def test_an_events_reward_counts_on_the_day_in_the_brands_time_zone(
    pool: Pool,
) -> None:
    days = {
        "UTC": date(2026, 3, 1),
        "Pacific/Kiritimati": date(2026, 3, 2),
        "Etc/GMT+12": date(2026, 2, 28),
    }
    zones = {f"0x{number:040x}": zone for number, zone in enumerate(days, 1)}
    claims = [an_event(a_brand(id=id_, time_zone=zone), ANN) for id_, zone in zones.items()]
    snapshot = ClaimSnapshot(claims={}, totals={}, usage={}, nonces={}, now=SUNDAY)
    decided = [new for new in decide_all(claims, snapshot, ()) if isinstance(new, NewEvent)]
    async with session(pool) as connection:
        assert len(await events.insert(connection, decided)) == len(days)
        rows = await connection.fetch("SELECT brand_id, earned_on FROM rewards")

    assert {zones["0x" + row["brand_id"].hex()]: row["earned_on"] for row in rows} == days


# --- what a reorg does --------------------------------------------------------------------------


async def test_a_reorg_removes_earnings_and_the_new_branch_restores_them(pool: Pool) -> None:
    brand = await apply(pool, a_brand())
    earnings = Earnings(pool)
    await earnings.earn(Earned(ANN, 5))
    (reward,) = await earnings.earn(Earned(BOB, 9), block=2)
    assert await values(pool, brand) == [9, 5]

    await earnings.undo(1)
    assert await values(pool, brand) == [5]

    await earnings.mint(2, reward, branch="'")
    assert await values(pool, brand) == [9, 5]
