"""Reads that may be old, on a primary with a streaming standby."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio

from ltzd.concurrency.answer_age import answer_age, begin_answer
from ltzd.dev.services import postgres
from ltzd.store.database import Connection, Pool, open_pool, session
from ltzd.store.replica import NotReplicated, ReplicaReads
from tests.support.clocks import ManualClock
from tests.support.folders import a_data_directory
from tests.support.services.mortal_proxy import a_mortal_proxy
from tests.support.services.replicas import Replica, a_copy
from tests.support.waiting import until

MOST = 10.0
_WHO = "SELECT pg_is_in_recovery()"


@dataclass(frozen=True)
class Pair:
    """A primary and its standby, each with a pool of two connections."""

    primary: Pool
    standby: Pool

    async def write(self, number: int) -> None:
        async with session(self.primary) as connection:
            await connection.execute("INSERT INTO written VALUES ($1)", number)


@dataclass(frozen=True)
class Servers:
    primary_url: str
    standby_url: str
    copy: Replica


@pytest_asyncio.fixture(scope="module")
async def servers() -> AsyncIterator[Servers]:
    async with a_data_directory() as folder, a_data_directory() as other:
        primary = await postgres.start(folder, postgres.UNSAFE_BUT_FAST)
        copy = await a_copy(folder, primary.url, other, follows=True)
        standby = await postgres.start(other, postgres.UNSAFE_BUT_FAST)
        yield Servers(primary.url, standby.url, copy)


@asynccontextmanager
async def pools(*urls: str) -> AsyncIterator[list[Pool]]:
    opened = [await open_pool(url, size=2, open_at_start=0) for url in urls]
    try:
        yield opened
    finally:
        for pool in opened:
            pool.terminate()


@pytest_asyncio.fixture
async def pair(servers: Servers) -> AsyncIterator[Pair]:
    async with pools(servers.primary_url, servers.standby_url) as (primary, standby):
        async with session(primary) as connection:
            await connection.execute("CREATE TABLE IF NOT EXISTS written (number int)")
        yield Pair(primary, standby)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def fresh(pair: Pair, clock: ManualClock) -> ReplicaReads:
    """Reads whose standby has replayed all that was written before."""
    reads = ReplicaReads(pair.primary, pair.standby, most_seconds=MOST, clock=clock)

    async def is_used() -> bool:
        await reads.check(pair.standby)
        return await reads.read(is_standby)

    await until(is_used)
    return reads


def unused(reads: ReplicaReads) -> tuple[float, str] | None:
    return reads.unused


async def is_standby(connection: Connection) -> bool:
    return bool(await connection.fetchval(_WHO))


async def numbers(connection: Connection) -> set[int]:
    return {row[0] for row in await connection.fetch("SELECT number FROM written")}


async def test_without_a_standby_the_primary_is_read_and_nothing_is_old(pair: Pair) -> None:
    reads = ReplicaReads(pair.primary)
    begin_answer()
    assert not await reads.read(is_standby)
    assert answer_age() is None
    assert unused(reads) is None


async def test_a_fresh_standby_answers_with_its_age(pair: Pair, clock: ManualClock) -> None:
    await pair.write(1)
    reads = await fresh(pair, clock)
    clock.now += 2.5
    begin_answer()
    assert await reads.read(is_standby)
    assert answer_age() == 2.5
    assert 1 in await reads.read(numbers)


async def test_before_the_first_look_the_primary_answers(pair: Pair, clock: ManualClock) -> None:
    reads = ReplicaReads(pair.primary, pair.standby, most_seconds=MOST, clock=clock)
    assert not await reads.read(is_standby)


async def test_a_standby_is_not_called_old_before_it_can_be_measured(
    pair: Pair, clock: ManualClock
) -> None:
    """The first check compares it with what the primary writes in that moment."""
    reads = ReplicaReads(pair.primary, pair.standby, most_seconds=MOST, clock=clock)
    async with session(pair.standby) as connection:
        await connection.execute("SELECT pg_wal_replay_pause()")
    try:
        await pair.write(5)
        await reads.check(pair.standby)
        assert unused(reads) is None
        assert not await reads.read(is_standby), "the primary answers all the same"

        clock.now += MOST + 0.1
        await reads.check(pair.standby)
        assert unused(reads) == (0, "it is more than 10 s behind the primary")
    finally:
        async with session(pair.standby) as connection:
            await connection.execute("SELECT pg_wal_replay_resume()")


async def test_a_standby_that_replays_nothing_is_left_once_it_is_too_old(
    pair: Pair, clock: ManualClock
) -> None:
    reads = await fresh(pair, clock)
    async with session(pair.standby) as connection:
        await connection.execute("SELECT pg_wal_replay_pause()")
    try:
        await pair.write(2)
        clock.now += MOST / 2
        await reads.check(pair.standby)
        begin_answer()
        assert await reads.read(is_standby)
        assert answer_age() == MOST / 2

        clock.now += MOST / 2 + 0.1
        begin_answer()
        assert 2 in await reads.read(numbers), "the primary answers"
        assert answer_age() is None
        await reads.check(pair.standby)
        clock.now += 60
        assert unused(reads) == (60, "it is more than 10 s behind the primary")
    finally:
        async with session(pair.standby) as connection:
            await connection.execute("SELECT pg_wal_replay_resume()")
    reads = await fresh(pair, clock)
    assert await reads.read(is_standby)
    assert 2 in await reads.read(numbers)


async def test_a_frozen_standby_delays_a_read_by_a_second_and_the_next_by_nothing(
    pair: Pair, clock: ManualClock
) -> None:
    reads = await fresh(pair, clock)
    async with session(pair.standby) as connection:
        backend = await connection.fetchval("SELECT pg_backend_pid()")
    os.kill(backend, signal.SIGSTOP)
    try:
        assert not await reads.read(is_standby)
        assert unused(reads) == (0, "a read had no answer within 1 s")
        assert not await asyncio.wait_for(reads.read(is_standby), 0.9)
    finally:
        os.kill(backend, signal.SIGCONT)


async def test_a_row_that_is_not_replicated_yet_is_read_from_the_primary(
    pair: Pair, clock: ManualClock
) -> None:
    reads = await fresh(pair, clock)

    async def ask(connection: Connection) -> str:
        if await is_standby(connection):
            raise NotReplicated("the brand is not there yet")
        return "found"

    begin_answer()
    assert await reads.read(ask) == "found"
    assert answer_age() is None
    assert await reads.read(is_standby), "the standby is used all the same"


async def test_a_read_that_conflicts_with_the_replay_is_answered_by_the_primary(
    pair: Pair, clock: ManualClock
) -> None:
    """The standby must end a query whose rows the primary has vacuumed away."""
    await pair.write(3)
    reads = await fresh(pair, clock)

    async def ask(connection: Connection) -> bool:
        if not await is_standby(connection):
            return False
        await connection.execute(
            "DO $$ BEGIN RAISE EXCEPTION 'canceling statement due to conflict with recovery'"
            " USING ERRCODE = 'serialization_failure'; END $$"
        )
        return True

    assert not await reads.read(ask)
    assert await reads.read(is_standby), "one conflict says nothing of the standby"


async def test_a_standby_of_another_database_is_not_used(
    servers: Servers, pair: Pair, clock: ManualClock
) -> None:
    url = f"{servers.standby_url.rpartition('/')[0]}/postgres"
    other = await open_pool(url, name="ltzd replica", open_at_start=0)
    try:
        reads = ReplicaReads(pair.primary, other, most_seconds=MOST, clock=clock)
        await reads.check(other)
        assert unused(reads) == (0, "it is a standby of another database")
        assert not await reads.read(is_standby)
    finally:
        other.terminate()


async def test_a_primary_in_the_standbys_place_is_not_used(pair: Pair, clock: ManualClock) -> None:
    reads = ReplicaReads(pair.primary, pair.primary, most_seconds=MOST, clock=clock)
    await reads.check(pair.primary)
    assert unused(reads) == (0, "it is no standby")


async def test_a_standby_of_a_lost_primary_is_not_used_beside_the_promoted_server(
    clock: ManualClock,
) -> None:
    """The promoted server lacks commits that the standby has, so its log ends before the standby's
    position, and the standby receives nothing of what is written from then on."""
    async with (
        a_data_directory() as first,
        a_data_directory() as other,
        a_data_directory() as next_,
    ):
        primary = await postgres.start(first, postgres.UNSAFE_BUT_FAST)
        await a_copy(first, primary.url, other, follows=True)
        promoted_url = await (await a_copy(first, primary.url, next_)).promote()
        standby = await postgres.start(other, postgres.UNSAFE_BUT_FAST)
        async with pools(primary.url, promoted_url, standby.url) as (before, after, copy):
            async with session(before) as connection:
                await connection.execute("CREATE TABLE lost AS SELECT generate_series(1, 100000)")
            await fresh(Pair(before, copy), clock)
            async with session(after) as connection:
                await connection.execute("CREATE TABLE written AS SELECT 1 AS number")

            reads = ReplicaReads(after, copy, most_seconds=MOST, clock=clock)
            await reads.check(copy)
            assert unused(reads) == (0, "it is on timeline 1, and the primary on timeline 2")
            assert await reads.read(numbers) == {1}


async def test_a_standby_that_follows_the_promoted_server_is_used(clock: ManualClock) -> None:
    async with (
        a_data_directory() as first,
        a_data_directory() as other,
        a_data_directory() as next_,
    ):
        primary = await postgres.start(first, postgres.UNSAFE_BUT_FAST)
        await a_copy(first, primary.url, next_, follows=True)
        promoted = await postgres.start(next_, postgres.UNSAFE_BUT_FAST)
        await a_copy(first, primary.url, other)
        standby = await postgres.start(other, postgres.UNSAFE_BUT_FAST)
        async with pools(primary.url, promoted.url, standby.url) as (before, after, copy):
            await fresh(Pair(before, after), clock)
            async with session(after) as connection:
                assert await connection.fetchval("SELECT pg_promote()")
            reads = ReplicaReads(after, copy, most_seconds=MOST, clock=clock)
            await reads.check(copy)
            assert unused(reads) == (0, "it is on timeline 1, and the primary on timeline 2")

            async with session(copy) as connection:
                await connection.execute(f"ALTER SYSTEM SET primary_conninfo = '{promoted.url}'")
                await connection.execute("SELECT pg_reload_conf()")
            reads = await fresh(Pair(after, copy), clock)
            assert await reads.read(is_standby)


async def test_behind_one_address_a_second_standby_is_never_taken_for_the_first(
    clock: ManualClock,
) -> None:
    """One address may lead to several standbys, and to another one from now on. The first standby
    follows, and the second receives nothing."""
    async with a_data_directory() as first, a_data_directory() as other, a_data_directory() as old:
        primary = await postgres.start(first, postgres.UNSAFE_BUT_FAST)
        async with pools(primary.url) as (before,), session(before) as connection:
            await connection.execute("CREATE TABLE written AS SELECT 1 AS number")
        await a_copy(first, primary.url, old)
        await a_copy(first, primary.url, other, follows=True)
        follower = await postgres.start(other, postgres.UNSAFE_BUT_FAST)
        lagging = await postgres.start(old, postgres.UNSAFE_BUT_FAST)
        async with (
            a_mortal_proxy(follower.url) as (proxy, url),
            pools(primary.url, url) as (before, copies),
        ):
            await Pair(before, copies).write(2)
            reads = await fresh(Pair(before, copies), clock)
            assert await reads.read(is_standby)
            proxy.lead_to(lagging.url)
            async with session(copies):  # the connection to the first standby is in use
                begin_answer()
                assert await reads.read(numbers) == {1, 2}
                assert answer_age() is None, "the primary answers"
                assert unused(reads) is None, "the first standby is fresh all the same"

                await reads.check(copies)
                assert unused(reads) == (0, "it is more than 10 s behind the primary")


async def test_a_standby_that_dies_and_returns_and_is_promoted(
    servers: Servers, pair: Pair, clock: ManualClock
) -> None:
    """The last test of the standby: it ends as a primary of its own."""
    reads = await fresh(pair, clock)
    folder = servers.copy.folder
    pid = int((folder / "postgres" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)

    async def is_left() -> bool:
        return not await reads.read(is_standby)

    await until(is_left)
    assert unused(reads) is not None

    await postgres.start(folder, postgres.UNSAFE_BUT_FAST)
    reads = await fresh(pair, clock)
    assert await reads.read(is_standby)

    async with session(pair.standby) as connection:
        assert await connection.fetchval("SELECT pg_promote()")
    await reads.check(pair.standby)
    assert unused(reads) == (0, "it is no standby")
    await pair.write(4)
    assert 4 in await reads.read(numbers)
