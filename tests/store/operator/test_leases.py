"""A lease has one holder; whatever ends the holder, the next waiter gets the lease in time.

Each `Leases` stands for a process.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic, time

import pytest
from structlog.testing import capture_logs

from ltzd.errors import DatabaseUnavailable, LaneLost
from ltzd.store import database
from ltzd.store.database import Pool, session
from ltzd.store.operator import leases
from ltzd.store.operator.leases import LeasePolicy, Leases, LeaseTerm
from tests.support.rows.core import value
from tests.support.services.silent_proxy import a_silent_proxy
from tests.support.waiting import Stopwatch, until

NAME = "lane/1/0x00"
TIMEOUT_SECONDS = 20.0
LOST_AFTER_ANY_PAUSE = LeasePolicy(length=1.0, margin=0.3, renewal=0.1, answer=0.3, connect=0.3)
NEVER_ENDS_BY_ITSELF = LeasePolicy(length=60.0, renewal=0.1)


async def kill(pool: Pool, all_but: int = 0) -> int:
    """Terminates the sessions that keep leases and returns their number."""
    killed: int = await value(
        pool,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE application_name = 'ltzd leases' AND datname = current_database() AND pid <> $1",
        all_but,
    )
    return killed


async def sessions(pool: Pool) -> int:
    count: int = await value(
        pool,
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name = 'ltzd leases' AND datname = current_database()",
    )
    return count


async def hold_once(process: Leases, name: str = NAME) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS), process.hold(name) as term:
        assert not term.lost.is_set()


async def a_standby(process: Leases, name: str = NAME) -> "asyncio.Task[None]":
    """Another process that waits for the lease, and ends once it has had it."""
    waiting = asyncio.create_task(hold_once(process, name))
    await asyncio.wait([waiting], timeout=0.3)
    assert not waiting.done(), "the lease has two holders"
    return waiting


async def until_lost(process: Leases, begun: "asyncio.Future[LeaseTerm]") -> None:
    """Holds the lease until it is lost."""
    try:
        async with process.hold(NAME) as term:
            begun.set_result(term)
            await asyncio.Event().wait()
    except LaneLost:
        assert term.lost.is_set()


@asynccontextmanager
async def a_holder(process: Leases) -> AsyncIterator["asyncio.Task[None]"]:
    """A process that holds the lease; the block must make it lose it."""
    begun: asyncio.Future[LeaseTerm] = asyncio.get_running_loop().create_future()
    holding = asyncio.create_task(until_lost(process, begun))
    await begun
    yield holding
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await holding


@asynccontextmanager
async def two_logins(database_url: str) -> AsyncIterator[tuple[str, str]]:
    """A user without privileges, and its second login, as docs/runbooks/rotation.md makes it."""
    owner = await database.connect(database_url, "test")
    place = database_url.rpartition("@")[2]
    try:
        await owner.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
        await owner.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON leases TO plain")
        await owner.execute("CREATE ROLE plain_next LOGIN PASSWORD 'next' IN ROLE plain")
        await owner.execute("ALTER ROLE plain_next SET role TO plain")
        yield f"postgresql://plain:plain@{place}", f"postgresql://plain_next:next@{place}"
    finally:
        await owner.execute("DROP OWNED BY plain, plain_next")
        await owner.execute("DROP ROLE plain_next, plain")
        await owner.close()


async def test_processes_with_two_logins_of_one_user_share_leases(database_url: str) -> None:
    """PostgreSQL hides from `plain` when the session of `plain_next` began."""
    async with two_logins(database_url) as (url, next_url):
        former, following = Leases(url), Leases(next_url)
        for holder, other in ((following, former), (former, following)):
            async with asyncio.timeout(TIMEOUT_SECONDS), holder.hold(NAME):
                waiting = await a_standby(other)
            await waiting


async def test_a_lease_has_one_holder_among_processes(database_url: str) -> None:
    first, other = Leases(database_url), Leases(database_url)
    async with first.hold(NAME), first.hold("lane/1/0x01"):
        waiting = await a_standby(other)
        await hold_once(other, "lane/1/0x02")
    await waiting


async def test_a_lease_has_one_holder_within_a_process(database_url: str) -> None:
    process = Leases(database_url)
    async with process.hold(NAME):
        waiting = await a_standby(process)
        await hold_once(process, "lane/1/0x01")
    await waiting


async def test_all_leases_of_a_process_share_a_connection_that_closes_with_the_last_term(
    database_url: str, pool: Pool
) -> None:
    process = Leases(database_url)
    async with process.hold("a"), process.hold("b"), process.hold("c"):
        assert await sessions(pool) == 1
    assert await sessions(pool) == 0
    assert await value(pool, "SELECT count(*) FROM leases") == 0


async def test_a_term_outlasts_many_renewals(database_url: str, pool: Pool) -> None:
    process = Leases(database_url, LOST_AFTER_ANY_PAUSE)
    async with process.hold("a") as a, process.hold("b") as b:
        first = await value(pool, "SELECT min(renewed_at) FROM leases")

        async def is_renewed() -> bool:
            longer: bool = await value(
                pool,
                "SELECT min(renewed_at) > $1::timestamptz + interval '2 seconds' FROM leases",
                first,
            )
            return longer

        await until(is_renewed)
        assert not a.lost.is_set()
        assert not b.lost.is_set()


async def test_a_clean_end_hands_the_lease_over_at_once(database_url: str) -> None:
    other = Leases(database_url, LeasePolicy(length=60.0, retry=60.0))
    async with Leases(database_url, NEVER_ENDS_BY_ITSELF).hold(NAME):
        waiting = await a_standby(other)
    await waiting


async def test_people_see_who_holds_a_lease_and_for_how_long(database_url: str, pool: Pool) -> None:
    async with Leases(database_url, LOST_AFTER_ANY_PAUSE).hold(NAME):

        async def is_held_for_a_second() -> bool:
            async with session(pool) as connection:
                (lease,) = await leases.list_all(connection)
            assert lease.name == NAME
            assert lease.process == f"{socket.gethostname()}/{os.getpid()}"
            return lease.held_seconds > 1 > lease.renewed_seconds_ago

        await until(is_held_for_a_second)


async def test_an_exception_in_the_block_frees_the_lease(database_url: str) -> None:
    process = Leases(database_url, NEVER_ENDS_BY_ITSELF)
    with pytest.raises(RuntimeError):
        async with process.hold(NAME):
            raise RuntimeError
    await hold_once(Leases(database_url))


async def test_a_cancelled_holder_frees_the_lease(database_url: str) -> None:
    holding = asyncio.Event()

    async def hold() -> None:
        async with Leases(database_url, NEVER_ENDS_BY_ITSELF).hold(NAME):
            holding.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await holding.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await hold_once(Leases(database_url))


async def test_a_timeout_within_the_block_stays_a_timeout(database_url: str) -> None:
    with pytest.raises(TimeoutError):
        async with Leases(database_url).hold(NAME):
            raise TimeoutError


async def test_a_holder_whose_session_ends_loses_the_lease_at_once_and_a_standby_takes_it(
    database_url: str, pool: Pool
) -> None:
    """As after `kill -9` of the holder, or a restart of PostgreSQL: nobody waits for expiry."""
    other = Leases(database_url, NEVER_ENDS_BY_ITSELF)
    async with a_holder(Leases(database_url, NEVER_ENDS_BY_ITSELF)):
        holder = await value(pool, "SELECT pid FROM leases")
        waiting = await a_standby(other)
        await value(pool, "SELECT pg_terminate_backend($1)", holder)
        await waiting


async def test_losing_the_database_while_waiting_is_unavailable(
    database_url: str, pool: Pool
) -> None:
    async with a_holder(Leases(database_url)):
        holder = await value(pool, "SELECT pid FROM leases")
        waiting = asyncio.create_task(hold_once(Leases(database_url)))

        async def two_sessions() -> bool:
            return await sessions(pool) == 2

        await until(two_sessions)
        # The holder's session ends last: its end would give the lease to the one that waits.
        await kill(pool, all_but=holder)
        await asyncio.wait([waiting], timeout=TIMEOUT_SECONDS)
        assert isinstance(waiting.exception(), DatabaseUnavailable)
        await kill(pool)


async def test_no_database_is_unavailable() -> None:
    with pytest.raises(DatabaseUnavailable):
        await hold_once(Leases("postgresql://nobody@127.0.0.1:1/nothing"))


@pytest.mark.usefixtures("stalls_count")
@pytest.mark.parametrize(
    ("broken", "restored"),
    [
        ("NOLOGIN", "LOGIN"),
        ("SET default_transaction_read_only = on", "RESET default_transaction_read_only"),
    ],
)
async def test_an_outage_is_two_lines_of_the_log_however_often_a_lease_is_wanted(
    database_url: str, pool: Pool, broken: str, restored: str
) -> None:
    async with session(pool) as connection:
        await connection.execute("CREATE ROLE holder SUPERUSER LOGIN PASSWORD 'secret'")
        await connection.execute(f"ALTER ROLE holder {broken}")
    address = database_url.rpartition("@")[2]
    process = Leases(f"postgresql://holder:secret@{address}")
    try:
        with capture_logs() as logs:
            for _ in range(3):
                with pytest.raises(DatabaseUnavailable):
                    await hold_once(process)
            async with session(pool) as connection:
                await connection.execute(f"ALTER ROLE holder {restored}")
            await hold_once(process)
    finally:
        async with session(pool) as connection:
            await connection.execute("DROP ROLE holder")

    begun, ended = [line for line in logs if line["event"].startswith("leases.")]
    assert begun["event"] == "leases.connection_lost"
    assert (ended["event"], ended["failures"]) == ("leases.connection_back", 3)


@pytest.mark.usefixtures("stalls_count")
async def test_a_network_that_swallows_packets_ends_the_term_before_another_process_takes_over(
    database_url: str,
) -> None:
    """The holder's session lives on: only the lease's time ends it."""
    async with a_silent_proxy(database_url) as (proxy, through):
        cut_off = Leases(through, LOST_AFTER_ANY_PAUSE)
        async with a_holder(cut_off) as holding:
            waiting = await a_standby(Leases(database_url))
            proxy.swallow()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.wait([holding, waiting], return_when=asyncio.FIRST_COMPLETED)
            assert holding.done()
            assert not waiting.done(), "two processes held the lease"
            await waiting
        proxy.heal()
        await hold_once(cut_off)


async def test_the_defaults_let_another_process_take_over_within_five_seconds(
    database_url: str,
) -> None:
    async with a_silent_proxy(database_url) as (proxy, through), a_holder(Leases(through)):
        waiting = await a_standby(Leases(database_url))
        proxy.swallow()
        begun = time()
        watch = Stopwatch()
        await waiting
        assert time() - begun > 2.0
        assert watch.seconds() < 10.0, "5 s, or twice as long on a loaded machine"


async def test_a_frozen_process_has_lost_the_lease_when_it_wakes_up(
    database_url: str, pool: Pool
) -> None:
    """A blocked event loop is as frozen as a process after SIGSTOP; another one takes over."""
    holder = Leases(database_url, LOST_AFTER_ANY_PAUSE)
    async with a_holder(holder) as holding:
        frozen_until = monotonic() + 1.5
        while monotonic() < frozen_until:
            pass
        async with asyncio.timeout(20):
            await holding


async def test_a_connection_that_does_not_answer_is_replaced_and_the_term_goes_on(
    database_url: str, pool: Pool
) -> None:
    """A firewall that has forgotten one connection must not end the terms of all wallets."""
    async with (
        a_silent_proxy(database_url) as (proxy, through),
        Leases(through).hold(NAME) as term,
    ):
        first = await value(pool, "SELECT pid FROM leases")
        proxy.swallow_present()

        async def is_replaced() -> bool:
            return bool(await value(pool, "SELECT pid <> $1 FROM leases", first))

        await until(is_replaced)
        assert not term.lost.is_set()


async def test_a_lease_whose_row_is_locked_holds_up_no_other_one(
    database_url: str, pool: Pool
) -> None:
    process = Leases(database_url, LOST_AFTER_ANY_PAUSE)
    async with (
        process.hold("other") as other,
        a_holder(process) as holding,
        session(pool) as connection,
        connection.transaction(),
    ):
        await connection.execute("SELECT FROM leases WHERE name = $1 FOR UPDATE", NAME)
        await asyncio.wait([holding], timeout=TIMEOUT_SECONDS)
        assert holding.done()
        assert not other.lost.is_set()


async def test_a_person_may_take_a_lease_away(database_url: str, pool: Pool) -> None:
    async with a_holder(Leases(database_url)):
        await value(pool, "WITH freed AS (DELETE FROM leases) SELECT 1")


async def test_a_clock_that_was_set_back_keeps_a_dead_holders_lease_no_longer(
    database_url: str, pool: Pool
) -> None:
    """The waiter's own clock decides when the database's tells of a time far ahead."""
    async with session(pool) as connection:
        await connection.execute(
            """
            INSERT INTO leases
            SELECT $1, gen_random_uuid(), 'gone', pid, backend_start,
                   now() + interval '1 day', now() + interval '1 day', now() + interval '2 days'
              FROM pg_stat_activity
             WHERE pid = pg_backend_pid()
            """,
            NAME,
        )
        await hold_once(Leases(database_url, LOST_AFTER_ANY_PAUSE))


async def test_the_end_of_a_lease_waits_for_no_lock_of_its_table(
    database_url: str, pool: Pool
) -> None:
    process = Leases(database_url)
    connection = await database.connect(database_url, "locker")
    try:
        async with connection.transaction():
            async with asyncio.timeout(TIMEOUT_SECONDS):
                async with process.hold(NAME):
                    await connection.execute("LOCK TABLE leases IN ACCESS EXCLUSIVE MODE")
    finally:
        await connection.close()
    await hold_once(Leases(database_url))
