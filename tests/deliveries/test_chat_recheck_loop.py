"""Stored answers of the chat platform are checked again every five minutes."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from ltzd import telemetry
from ltzd.deliveries.chat_recheck_loop import PERIOD_SECONDS, ChatRecheckLoop
from ltzd.providers.chat import ChatPlatform
from ltzd.rules.constraints.chat_queries import ChatQuery
from ltzd.rules.constraints.constraints import ChatConstraint, ChatLevel, ChatRole
from ltzd.store.constraints import results as constraint_results
from ltzd.store.constraints.results import ConstraintSubject, ResultKey
from ltzd.store.database import Pool, session
from ltzd.store.operator.leases import Leases
from tests.support.rows.core import a_wallet, running, value
from tests.support.services.chat_platform import (
    ADA,
    BEN,
    GUILD,
    OTHER_GUILD,
    OTHER_ROLE,
    ROLE,
    ChatServer,
    a_chat_server,
    answering,
    limited,
)
from tests.support.waiting import until

BRAND, WALLET, OTHER_WALLET = a_wallet(0xB), a_wallet(1), a_wallet(2)


def role(guild: str = GUILD, wanted: str = ROLE) -> ChatRole:
    return ChatRole(collection_id=7, kind="chat_role", guild_id=guild, role_id=wanted)


def level(least: int = 5) -> ChatLevel:
    return ChatLevel(collection_id=7, kind="chat_level", guild_id=GUILD, min=least)


@dataclass
class Clock:
    """A clock whose sleeps end when a test lets the time pass; short waits end at once."""

    slept: list[float] = field(default_factory=list)
    _periods: asyncio.Queue[None] = field(default_factory=asyncio.Queue)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if seconds == PERIOD_SECONDS:
            await self._periods.get()

    def a_period_passes(self) -> None:
        self._periods.put_nowait(None)


@dataclass
class Rechecked:
    pool: Pool
    url: str
    server: ChatServer
    platform: ChatPlatform
    clock: Clock
    page_size: int = 500

    async def keep(
        self, constraint: ChatConstraint, *accounts: str, outcome: bool = True, **place: Any
    ) -> None:
        """`place` may be its wallet, its position, and how many seconds it has."""
        key = ResultKey(place.get("wallet", WALLET), 7, place.get("position", 0))
        question = ChatQuery(constraint=constraint, accounts=accounts or (ADA,)).as_bytes()
        subject = ConstraintSubject(BRAND, constraint.kind, fingerprint=question)
        async with session(self.pool) as connection:
            ticket = await constraint_results.begin(connection, key, subject, 30)
            seconds = place.get("seconds", 3600)
            assert await constraint_results.put(connection, key, ticket, outcome, seconds)

    async def kept(self) -> list[tuple[bytes, int]]:
        """By wallet and position."""
        async with session(self.pool) as connection:
            rows = await connection.fetch(
                "SELECT user_address, position FROM constraint_results ORDER BY 1, 2"
            )
        return [(row[0], row[1]) for row in rows]

    def loop(self) -> ChatRecheckLoop:
        return ChatRecheckLoop(
            self.pool, Leases(self.url), self.platform, self.clock.sleep, self.page_size
        )

    async def recheck(self) -> int:
        return await self.loop().recheck()

    async def are_asked(self, times: int) -> None:
        async def were_asked() -> bool:
            return len(self.server.requests) >= times

        await until(were_asked)


@pytest_asyncio.fixture
async def rechecked(pool: Pool, database_url: str) -> AsyncIterator[Rechecked]:
    async with a_chat_server() as server, ChatPlatform(server.policy()) as platform:
        yield Rechecked(pool, database_url, server, platform, Clock())


async def test_results_with_a_changed_answer_are_deleted(rechecked: Rechecked) -> None:
    rechecked.server.roles[GUILD, ADA] = [OTHER_ROLE]
    rechecked.server.levels[GUILD, ADA] = 5
    await rechecked.keep(role(), position=0)
    await rechecked.keep(role(wanted=OTHER_ROLE), position=1)
    await rechecked.keep(role(wanted=OTHER_ROLE), position=2, outcome=False)
    await rechecked.keep(level(5), position=3)
    await rechecked.keep(level(5), position=4, outcome=False)
    await rechecked.keep(level(6), position=5)
    await rechecked.keep(role(OTHER_GUILD), position=6)
    await rechecked.keep(role(OTHER_GUILD), position=7, outcome=False)
    before = telemetry.CHAT_RESULTS_DROPPED._value.get()

    assert await rechecked.recheck() == 5
    assert await rechecked.kept() == [(WALLET, position) for position in (1, 3, 7)]
    assert telemetry.CHAT_RESULTS_DROPPED._value.get() == before + 5


async def test_each_member_is_looked_up_once(rechecked: Rechecked) -> None:
    for position, wanted in enumerate((ROLE, OTHER_ROLE)):
        for wallet in (WALLET, OTHER_WALLET):
            await rechecked.keep(role(wanted=wanted), wallet=wallet, position=position)
    await rechecked.keep(level(), position=2)
    await rechecked.keep(role(), ADA, BEN, position=3)

    await rechecked.recheck()
    assert sorted(rechecked.server.requests) == [
        ("level", GUILD, ADA),
        ("role", GUILD, ADA),
        ("role", GUILD, BEN),
    ]


async def test_all_pages_are_read(rechecked: Rechecked) -> None:
    rechecked.page_size = 2
    for number in range(1, 6):
        await rechecked.keep(role(), wallet=a_wallet(number), outcome=number % 2 == 0)
    rechecked.server.roles[GUILD, ADA] = [ROLE]

    assert await rechecked.recheck() == 3
    assert await rechecked.kept() == [(a_wallet(2), 0), (a_wallet(4), 0)]
    assert len(rechecked.server.requests) == 1, "neither one page nor several"


@pytest.mark.parametrize(
    ("has_role", "dropped"),
    [((True, False), 0), ((False, True), 0), ((False, False), 1)],
)
async def test_one_of_several_accounts_is_enough(
    rechecked: Rechecked, has_role: tuple[bool, bool], dropped: int
) -> None:
    await rechecked.keep(role(), ADA, BEN)
    for account, has in zip((ADA, BEN), has_role, strict=True):
        rechecked.server.roles[GUILD, account] = [ROLE] if has else []
    assert await rechecked.recheck() == dropped


@pytest.mark.parametrize(
    "trouble", [answering(503), answering(403, {"code": 50001}), answering(200, {})]
)
async def test_an_unavailable_answer_changes_nothing(rechecked: Rechecked, trouble: Any) -> None:
    await rechecked.keep(role(), ADA, BEN)
    await rechecked.keep(role(), BEN, position=1, outcome=False)
    rechecked.server.roles[GUILD, ADA] = []
    rechecked.server.always[GUILD] = trouble

    assert await rechecked.recheck() == 0
    assert len(await rechecked.kept()) == 2
    rechecked.server.always.clear()
    assert await rechecked.recheck() == 1, "the next recheck asks again"


async def test_a_guild_that_refuses_the_bot_is_skipped_and_others_are_rechecked(
    rechecked: Rechecked,
) -> None:
    rechecked.server.always[GUILD] = answering(403, {"code": 50001})
    for number in range(40):
        await rechecked.keep(role(), f"8000000000000001{number:02}", wallet=a_wallet(number + 1))
    await rechecked.keep(role(OTHER_GUILD), wallet=a_wallet(99))

    assert await rechecked.recheck() == 1
    refused = [guild for _, guild, _ in rechecked.server.requests if guild == GUILD]
    assert 5 <= len(refused) < 10, (
        "a guild that refuses was requested again; refusals count against the bot"
    )
    assert len(await rechecked.kept()) == 40


async def test_the_recheck_waits_as_long_as_the_platform_asks(rechecked: Rechecked) -> None:
    """The wait is longer than a user's request would take; only the test's clock advances."""
    await rechecked.keep(role())
    rechecked.server.next[GUILD].append(limited(30))

    assert await rechecked.recheck() == 0
    assert len(rechecked.server.requests) == 1
    assert rechecked.clock.slept
    assert all(29 < seconds <= 30 for seconds in rechecked.clock.slept)


async def test_after_the_wait_the_recheck_continues(rechecked: Rechecked) -> None:
    await rechecked.keep(role())
    rechecked.server.next[GUILD].append(limited(0.3))
    policy = rechecked.server.policy(timeout_seconds=0.2)

    async with ChatPlatform(policy) as impatient:
        recheck = ChatRecheckLoop(rechecked.pool, Leases(rechecked.url), impatient)
        assert await recheck.recheck() == 1
    assert len(rechecked.server.requests) == 2


async def test_expired_results_are_deleted_without_a_lookup(rechecked: Rechecked) -> None:
    await rechecked.keep(role(), seconds=0)
    assert await rechecked.recheck() == 0
    assert (rechecked.server.requests, await rechecked.kept()) == ([], [])


async def test_a_result_newer_than_the_rechecks_lookup_is_kept(rechecked: Rechecked) -> None:
    gate = asyncio.Event()

    async def held(_request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return web.json_response({"roles": []})

    await rechecked.keep(role())
    rechecked.server.next[GUILD].append(held)
    recheck = asyncio.create_task(rechecked.recheck())
    await rechecked.are_asked(1)
    await rechecked.keep(role())
    gate.set()

    assert await recheck == 0
    assert await rechecked.kept() == [(WALLET, 0)]


async def test_results_of_other_kinds_are_kept(rechecked: Rechecked) -> None:
    url = "https://api.example/{user_address}"
    subject = ConstraintSubject(BRAND, "external_api", url, b"said")
    async with session(rechecked.pool) as connection:
        ticket = await constraint_results.begin(connection, ResultKey(WALLET, 7, 0), subject, 30)
        await constraint_results.put(connection, ResultKey(WALLET, 7, 0), ticket, True, 60)
    assert await rechecked.recheck() == 0
    assert len(await rechecked.kept()) == 1


async def test_a_result_that_another_version_stored_is_deleted(rechecked: Rechecked) -> None:
    await rechecked.keep(role())
    async with session(rechecked.pool) as connection:
        await connection.execute("UPDATE constraint_results SET fingerprint = 'another form'")
    assert await rechecked.recheck() == 1
    assert rechecked.server.requests == []


async def test_the_loop_rechecks_at_once_and_then_every_five_minutes(rechecked: Rechecked) -> None:
    await rechecked.keep(role(), outcome=False)
    async with running(rechecked.loop().run()):
        for times in (1, 2, 3):
            await rechecked.are_asked(times)
            await until(lambda times=times: _has_slept(rechecked, times))  # type: ignore[misc]
            assert len(rechecked.server.requests) == times
            rechecked.clock.a_period_passes()
    assert set(rechecked.clock.slept) == {300.0}


async def _has_slept(rechecked: Rechecked, times: int) -> bool:
    return len(rechecked.clock.slept) == times


async def test_one_process_rechecks_and_another_takes_over_when_it_ends(
    rechecked: Rechecked,
) -> None:
    await rechecked.keep(role(), outcome=False)
    async with running(rechecked.loop().run()):
        await rechecked.are_asked(1)
        async with running(rechecked.loop().run()):
            await until(lambda: _connections(rechecked, 2))
            assert len(rechecked.server.requests) == 1
            await value(rechecked.pool, CUT_THE_HOLDER)
            await rechecked.are_asked(2)


CUT_THE_HOLDER = """
SELECT pg_terminate_backend(pid) FROM leases WHERE name = 'chat_recheck'
"""


async def _connections(rechecked: Rechecked, count: int) -> bool:
    connections: int = await value(
        rechecked.pool,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 "
        "AND datname = current_database()",
        "ltzd leases",
    )
    return connections == count
