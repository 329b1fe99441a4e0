"""Retention drops whole partitions of old events; books, limits and newer events stay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from benchmarks.harness.hot_queries import HotQuery, Sample, touched
from ltzd.rules.books import Figures
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.event_handler.event_ids import event_id
from ltzd.rules.event_handler.event_partitions import USUAL_WIDTH
from ltzd.store import database
from ltzd.store.books import figures as books
from ltzd.store.books import statements
from ltzd.store.books.figures import ALL_TIME, Period
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.event_handler import events, partitions
from ltzd.store.event_handler.partitions import Partition
from ltzd.store.migrations.event_partitions import DEFAULT, FIRST
from ltzd.store.retention import old_events
from tests.support.rows.books import ONE, TWO, BookRows, reconcile

AFTER = timedelta(days=30)
DAY = 86_400


@pytest_asyncio.fixture
async def db(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "test")
    yield connection
    connection.terminate()


class Site:
    """A database whose newest partitions are of today, with events of any age."""

    def __init__(self, db: Connection, rows: BookRows, now: int) -> None:
        self.db = db
        self.rows = rows
        self.now = now
        self._made = 0

    async def event(self, days: int, *, brand: Brand = ONE, ltz: int = 100) -> UUID:
        """An event that many days ago, with an id of that time."""
        self._made += 1
        id_ = event_id(self.now - days * DAY, self._made)
        made = await self.rows.event(brand, ltz)
        at = timedelta(days=days)
        await self.db.execute("UPDATE rewards SET id = $2 WHERE id = $1", made, id_)
        await self.db.execute(
            "UPDATE events SET id = $2, created_at = now() - $3::interval WHERE id = $1",
            *(made, id_, at),
        )
        await self.db.execute(
            "UPDATE rewards SET created_at = now() - $2::interval WHERE id = $1", id_, at
        )
        return id_

    async def finish(self, *rewards: UUID) -> None:
        """Mints the rewards, in a block that becomes final."""
        number = await self.rows.minted(*rewards)
        await self.db.execute("UPDATE chains SET final_number = $1", number)

    async def close(self) -> int:
        return await old_events.close(self.db, AFTER)

    async def partitions(self) -> list[str]:
        return [each.name for each in await partitions.list_partitions(self.db)]

    async def count(self) -> int:
        count: int = await self.db.fetchval("SELECT count(*) FROM events")
        return count

    async def books(self, period: Period = ALL_TIME) -> dict[str, Figures]:
        async with books.snapshot(self.db):
            figures = await books.read_figures(self.db, period=period)
        return {brand.hex(): each for brand, each in figures.items()}

    async def discrepancies(self) -> dict[str, int]:
        async with books.snapshot(self.db):
            kinds = await reconcile(self.db, 20)
        return {each.kind: each.count for each in kinds}

    async def statement(self) -> list[tuple[object, ...]]:
        async with books.snapshot(self.db):
            return [
                (line.id, line.kind, line.user_id, line.wallet, line.ltz, line.state)
                async for line in statements.read_lines(self.db, ONE.address, ALL_TIME)
            ]


@pytest_asyncio.fixture
async def site(db: Connection) -> Site:
    """Partitions of three months: ids of today are in the newest one."""
    now = await db.fetchval("SELECT extract(epoch FROM now())::bigint")
    for days in (100, 70, 40, 10, 0):
        await partitions.ensure(db, now - days * DAY)
    rows = BookRows(db)
    await rows.begin(Sealer([b"k" * 32]))
    return Site(db, rows, now)


async def test_partitions_of_old_settled_events_are_dropped_and_the_books_are_the_same(
    site: Site,
) -> None:
    old = [await site.event(days) for days in (100, 99, 70)] + [await site.event(98, brand=TWO)]
    await site.event(97, ltz=0)
    new = await site.event(1)
    await site.finish(*old, new)
    before = await site.books(), await site.statement(), await site.partitions()
    day = Period(until=await site.db.fetchval("SELECT now() - interval '98 days 12 hours'"))
    of_some_days = await site.books(day)
    assert await site.discrepancies() == {}

    assert await site.close() >= 2

    assert await site.count() == 1
    assert len(await site.partitions()) < len(before[2])
    assert (await site.books(), await site.statement()) == before[:2]
    assert await site.books(day) == of_some_days
    assert of_some_days[ONE.address.hex()].answered == 2
    assert await site.discrepancies() == {}
    assert await events.find(site.db, old[0]) is None
    assert await events.find(site.db, new) is not None
    assert await site.close() == 0


async def test_events_with_random_ids_are_dropped_once_the_newest_of_them_is_old(
    site: Site,
) -> None:
    random = await site.rows.event()
    await site.finish(random)
    await site.close()
    assert FIRST in await site.partitions()

    await site.rows.recorded(random, await site.db.fetchval("SELECT now() - interval '31 days'"))
    before = await site.books()
    assert await site.close() >= 1

    assert FIRST not in await site.partitions()
    assert await site.books() == before
    assert await site.discrepancies() == {}
    # A program of the version before makes such ids: they have a place.
    late = await site.rows.event()
    assert await site.discrepancies() == {}
    assert (await site.books())[ONE.address.hex()].answered == 2
    assert await site.db.fetchval(f"SELECT id FROM {DEFAULT}") == late


@pytest.mark.parametrize("what", ["waits", "in flight", "minted and not final", "differs"])
async def test_one_unsettled_reward_keeps_its_partition_and_no_other(site: Site, what: str) -> None:
    kept, gone = await site.event(70), await site.event(100)
    await site.finish(gone)
    match what:
        case "in flight":
            await site.rows.sign(kept)
        case "minted and not final":
            await site.rows.minted(kept)
        case "differs":
            await site.finish(kept)
            await site.db.execute("UPDATE rewards SET ltz = ltz + 1 WHERE id = $1", kept)

    assert await site.close() >= 1

    assert await site.count() == 1
    assert await events.find(site.db, kept) is not None


async def test_a_reward_that_is_queued_for_years_has_its_partition_read_by_nobody(
    site: Site,
) -> None:
    waiting = await site.event(60)
    partition = await site.db.fetchval(
        "SELECT tableoid::regclass::text FROM events WHERE id = $1", waiting
    )
    await site.db.execute(
        """
        INSERT INTO events
        SELECT (left(id::text, 24) || lpad(to_hex(n), 12, '0'))::uuid, brand_id, event_type, email,
               user_id, domain, source, user_identifier, metadata, 0, created_at
          FROM events
         CROSS JOIN generate_series(2, 2000) AS n
         WHERE id = $1
        """,
        waiting,
    )
    await site.db.execute("ANALYZE")

    close = HotQuery("close", lambda c, _: old_events.close(c, AFTER))
    _, scanned = await touched(site.db, close, Sample(1))

    assert scanned
    assert partition not in scanned
    await site.finish(waiting)
    assert await site.close() >= 1
    assert partition not in await site.partitions()


async def test_a_failed_reward_keeps_nothing_and_is_minted_after_all(site: Site) -> None:
    refused = await site.event(70)
    await site.rows.fail(refused)

    assert await site.close() >= 1
    assert await site.count() == 0
    assert (await site.books())[ONE.address.hex()].failed == 1
    assert await site.discrepancies() == {}

    await site.db.execute("UPDATE rewards SET failed_at = NULL, failure = NULL")
    await site.finish(refused)
    assert (await site.books())[ONE.address.hex()].minted == 1
    assert await site.discrepancies() == {}


async def test_the_newest_partition_stays_however_old_it_is(site: Site) -> None:
    await site.db.execute("DELETE FROM events")
    newest = (await site.partitions())[-1]
    assert await old_events.close(site.db, timedelta(days=-4 * 365)) >= 1
    assert await site.partitions() == [newest]
    await partitions.ensure(site.db, site.now + 2 * USUAL_WIDTH)
    assert len(await site.partitions()) >= 2


# --- at work beside others ------------------------------------------------------------------------


@asynccontextmanager
async def another(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "another")
    try:
        yield connection
    finally:
        connection.terminate()


async def test_an_open_transaction_of_a_writer_is_waited_for_by_nobody(
    site: Site, database_url: str
) -> None:
    await site.finish(await site.event(100))
    async with another(database_url) as writer, writer.transaction():
        await writer.execute("UPDATE events SET metadata = NULL")
        assert await site.close() == 0
        assert await site.count() == 1
    assert await site.close() >= 1
    assert await site.count() == 0


async def test_a_process_that_dies_before_the_commit_has_changed_nothing(
    site: Site, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await site.event(100)
    await site.finish(old)
    before = await site.partitions(), await site.books()
    drop = old_events._drop

    async def and_die(connection: Connection, *arguments: Any) -> None:
        await drop(connection, *arguments)
        connection.terminate()

    monkeypatch.setattr(old_events, "_drop", and_die)
    async with another(database_url) as dying:
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await old_events.close(dying, AFTER)
    monkeypatch.undo()

    assert (await site.partitions(), await site.books()) == before
    assert await events.find(site.db, old) is not None
    assert await site.close() >= 1
    assert (await site.books(), await site.discrepancies()) == (before[1], {})


async def test_several_processes_drop_a_partition_once(site: Site, database_url: str) -> None:
    await site.finish(await site.event(100), await site.event(70))
    before = await site.books()
    async with another(database_url) as second, another(database_url) as third:
        await asyncio.gather(*(old_events.close(each, AFTER) for each in (site.db, second, third)))
    await site.close()
    assert await site.count() == 0
    assert (await site.books(), await site.discrepancies()) == (before, {})


async def test_an_event_that_comes_while_the_sums_are_read_keeps_its_partition(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that is weeks behind, since ids hold the time."""
    await site.finish(await site.event(100))
    read = old_events._read

    async def and_insert(connection: Connection, partition: Partition) -> object:
        content = await read(connection, partition)
        if content.sums:
            late = await site.event(100)
            await site.rows.recorded(late, await site.db.fetchval("SELECT clock_timestamp()"))
        return content

    monkeypatch.setattr(old_events, "_read", and_insert)
    await site.close()
    assert await site.count() == 2
    assert await site.discrepancies() == {}


async def test_sums_that_rewards_contradict_are_reported(site: Site) -> None:
    old = await site.event(100)
    await site.finish(old)
    await site.close()
    await site.db.execute("UPDATE closed_event_sums SET ltz = ltz + 1")
    assert await site.discrepancies() == {"closed_events_and_rewards_differ": 1}
    await site.db.execute("UPDATE closed_event_sums SET ltz = ltz - 1")
    await site.db.execute("DELETE FROM rewards WHERE id = $1", old)
    assert (await site.discrepancies())["closed_events_and_rewards_differ"] == 1


async def test_a_long_reader_of_events_lets_their_writers_wait_once_a_round(
    site: Site, database_url: str
) -> None:
    """A backup reads the table of events for hours, and every partition would wait for it."""
    old = [await site.event(days) for days in (100, 70)]
    await site.finish(*old)
    backup = await database.connect(database_url, "backup")
    async with backup.transaction():
        await backup.execute("LOCK TABLE events IN ACCESS SHARE MODE")
        with capture_logs() as lines:
            assert await site.close() == 0
    await backup.close()

    assert [line["event"] for line in lines] == ["old_events.wait"]
    assert await site.close() >= 2
