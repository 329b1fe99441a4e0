"""The newest events are found by the index of each brand, whatever plan PostgreSQL makes."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
import pytest_asyncio

from benchmarks.harness.hot_queries import HotQuery, Sample, touched
from ltzd.store import database
from ltzd.store.database import Connection
from ltzd.store.event_handler.listing import EventSelection, list_events
from ltzd.values import Address
from tests.support.rows.explained import Explained
from tests.support.waiting import until

EVENTS = 20_000
BRANDS = (Address(b"\xaa" * 20), Address(b"\xbb" * 20))


@pytest_asyncio.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "test")
    for brand in BRANDS:
        await connection.execute(
            "INSERT INTO brands (id, name, configuration, revision) VALUES ($1, 'a', '{}', 1)",
            brand,
        )
        await connection.execute(
            """
            INSERT INTO events (id, brand_id, event_type, email, user_id, domain, ltz, created_at)
            SELECT gen_random_uuid(), $1, 'form_submit', 'a@a.example', gen_random_uuid(),
                   'a.example', 0, now() - make_interval(mins => n)
              FROM generate_series(1, $2::int) n
            """,
            brand,
            EVENTS,
        )
    yield connection
    await connection.close()


@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_the_rows_read_do_not_grow_with_the_table(connection: Connection, plans: str) -> None:
    now = datetime.now(UTC)
    await connection.execute(f"SET plan_cache_mode = {plans}")
    for statement in ("SELECT 1", "ANALYZE"):
        await connection.execute(statement)
        for selection, count in (
            (EventSelection(limit=30), 30),
            (EventSelection(since=now - timedelta(minutes=10.5), limit=10_000), 20),
            (EventSelection(brand=BRANDS[0], until=now - timedelta(days=5), limit=30), 30),
        ):
            explained = Explained(connection)
            listed = await list_events(cast("Connection", explained), selection)
            assert len(listed) == count
            assert explained.read < 500, (statement, selection)


async def are_visible_to_all(connection: Connection) -> bool:
    """Vacuums the events. A snapshot of autovacuum, of any table, prevents it for a while."""
    await connection.execute("VACUUM ANALYZE events")
    seen = await connection.fetchval(
        "SELECT bool_and(relpages <= relallvisible + 1) FROM pg_class "
        "WHERE relname LIKE 'events\\_%' AND relkind = 'r'"
    )
    return bool(seen)


async def test_a_status_is_looked_for_in_the_newest_events_alone(database_url: str) -> None:
    """Not in as many of each brand: the index alone tells which are the newest of all."""
    connection = await database.connect(database_url, "test")
    for statement in (
        """
        INSERT INTO brands (id, name, configuration, revision)
        SELECT substring(sha256(int8send(n)) FOR 20), 'a', '{}', 1 FROM generate_series(1, 50) n
        """,
        f"""
        INSERT INTO events (id, brand_id, event_type, email, user_id, domain, ltz, created_at)
        SELECT gen_random_uuid(), id, 'form_submit', 'a@a.example', gen_random_uuid(), 'a.example',
               0, now() - make_interval(mins => n)
          FROM generate_series(1, {EVENTS} / 50) n
         CROSS JOIN brands
        """,
    ):
        await connection.execute(statement)
    await until(lambda: are_visible_to_all(connection))
    search = EventSelection(status="final", limit=7, scanned=500)
    query = HotQuery("a status", lambda c, _: list_events(c, search), 3_500)
    pages, _ = await touched(connection, query, Sample(EVENTS))
    assert 500 < pages < query.pages
    listed = await list_events(connection, search)
    newest = await connection.fetch(
        "SELECT id FROM events ORDER BY created_at DESC, id LIMIT $1", search.limit
    )
    assert [event.id for event in listed] == [row["id"] for row in newest]
    await connection.close()
