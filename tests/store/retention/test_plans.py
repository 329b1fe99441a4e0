"""Retention and erasure read little of large tables, with plans that are made for each statement.

Behind a pooler, and in commands, PostgreSQL plans with the arguments and its estimates.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest
import pytest_asyncio

from benchmarks.harness import event_rows
from ltzd.store import database
from ltzd.store.database import Connection
from ltzd.store.event_handler import partitions
from ltzd.store.retention import erasure, expiry
from ltzd.store.retention.expiry import RetentionPolicy
from ltzd.store.retention.refused_rows import RefusedRows
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.webhooks import queue as webhooks
from tests.support.rows.explained import Explained
from tests.support.surfaces.event_action import SEALER

EVENTS = 40_000
"""Of ten brands, in partitions of two years."""
USER = UUID("0e000000-0000-0000-0000-000000000700")
"""Has ten events, which follow each other."""


@pytest_asyncio.fixture
async def db(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "test")
    yield connection
    connection.terminate()


async def fill_events(db: Connection) -> None:
    """As autovacuum does, leaves the empty partitions without statistics."""
    await event_rows.fill_events(db, EVENTS)
    for partition in await partitions.list_partitions(db):
        if partition.lower is not None:
            await db.execute(f"ANALYZE {partition.name}")
    await db.execute("SET enable_seqscan = off")  # as if the partitions were large


async def test_a_batch_of_old_events_is_read_without_the_rest_of_the_brands_events(
    db: Connection,
) -> None:
    await fill_events(db)
    explained = Explained(db)
    policy = RetentionPolicy(event_addresses=timedelta(days=30))

    cleared = await expiry.expire(explained, policy, ErasedAddresses(SEALER), RefusedRows(), 50)

    assert cleared == 50 * event_rows.BRANDS
    assert explained.read < EVENTS / event_rows.BRANDS


async def test_each_event_of_an_erased_user_is_looked_for_in_one_partition(db: Connection) -> None:
    if db.get_server_version() < (15,):
        pytest.skip("PostgreSQL 14 cannot be told to count now")
    await fill_events(db)
    await db.execute("SET plan_cache_mode = force_generic_plan")  # which is kept after five batches
    before = await searched(db)

    assert await erasure.clear_events(db, USER) == 10

    assert len(set(await searched(db)) - set(before)) == 1


async def searched(db: Connection) -> list[tuple[str, int]]:
    """The partitions of events, and how often an index of each was searched."""
    await db.execute("SELECT pg_stat_force_next_flush()")
    return [
        tuple(row)
        for row in await db.fetch(
            """
            SELECT relname::text, idx_scan FROM pg_stat_user_tables WHERE relname LIKE 'events_%'
            """
        )
    ]


async def test_expired_webhooks_are_looked_for_without_a_scan_for_each_brand(
    db: Connection,
) -> None:
    await db.execute(
        """
        INSERT INTO brands (id, name, configuration, revision)
        SELECT decode(lpad(to_hex(n), 40, '0'), 'hex'), n::text, '{}', 1
          FROM generate_series(1, 20) AS n
        """
    )
    await db.execute(
        """
        INSERT INTO webhooks (brand_id, kind, subject, state, created_at)
        SELECT decode(lpad('1', 40, '0'), 'hex'), 'ltz_distributed', gen_random_uuid(),
               CASE WHEN n % 10 = 0 THEN 'pending' ELSE 'delivered' END,
               now() - n * interval '1 second'
          FROM generate_series(1, 60000) AS n
        """
    )
    await db.execute("ANALYZE webhooks")
    explained = Explained(db)

    await webhooks.delete_expired(explained)

    assert explained.changing_read < 500
