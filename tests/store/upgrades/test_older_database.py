"""A database that revision 0022 has filled is upgraded whole: no row, limit or reward is lost.

`r0022.dump` has a brand, seven users, eight events, seven mints in one transaction, their facts and
webhooks, and a reward that waits. The program of that revision has written all of it.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ltzd.dev.sandbox import Sandbox
from ltzd.errors import MaxClaimsReached
from ltzd.rules.brands.configuration import EventRule
from ltzd.store import schema_revisions
from ltzd.store.background_migrations import BackgroundMigrations
from ltzd.store.database import Connection, Pool, open_pool, session
from tests.support.rows.books import reconcile
from tests.support.rows.core import value
from tests.support.services.dumps import restored
from tests.support.surfaces.event_action import a_brand, a_handler, a_request, sandbox

__all__ = ["sandbox"]

DUMP = Path(__file__).parent / "r0022.dump"


@pytest_asyncio.fixture
async def older_url(database_url: str) -> AsyncIterator[str]:
    async with restored(database_url, DUMP, "of_r0022") as url:
        yield url


@pytest_asyncio.fixture
async def upgraded(older_url: str) -> AsyncIterator[Pool]:
    await schema_revisions.migrate(older_url)
    pool = await open_pool(older_url)
    await BackgroundMigrations(older_url, lambda: True).run()
    yield pool
    pool.terminate()


async def test_the_schema_is_that_of_a_new_database_and_the_books_agree(
    upgraded: Pool, database_url: str
) -> None:
    fresh = await open_pool(database_url)
    async with session(upgraded) as old, session(fresh) as new:
        assert await schema_of(old) == await schema_of(new)
    fresh.terminate()
    await every_row_is_there(upgraded)


async def every_row_is_there(upgraded: Pool) -> None:
    async with session(upgraded) as connection:
        assert await reconcile(connection, 20) == []
    counts = {
        table: await value(upgraded, f"SELECT count(*) FROM {table}")
        for table in ("events", "rewards", "users", "mints", "webhooks", "event_claims", "brands")
    }
    assert list(counts.values()) == [8, 8, 7, 7, 7, 7, 1]
    waiting = "SELECT count(*) FROM rewards WHERE transaction_id IS NULL"
    assert await value(upgraded, waiting) == 1


async def test_limits_and_wallets_of_before_the_upgrade_still_count(
    upgraded: Pool, older_url: str, sandbox: Sandbox
) -> None:
    async with session(upgraded) as connection:
        wallet = await connection.fetchval(
            "SELECT wallet FROM users WHERE email_key = 'user1@shop.example'"
        )
    rule = EventRule(type="account_creation", reward=100, max_claims_per_user=2, cooldown_hours=0)
    brand = a_brand(rule, duplicate_window_seconds=0)
    async with a_handler(older_url, sandbox, brand) as handler:
        assert (await handler.record(a_request("user1@shop.example"))).wallet == wallet
        for number in (0, 1):
            with pytest.raises(MaxClaimsReached):
                await handler.record(a_request(f"user{number}@shop.example"))


async def schema_of(connection: Connection) -> dict[str, list[tuple[object, ...]]]:
    """Columns, indexes, constraints and views, in an order of their own."""
    return {
        name: sorted(tuple(map(str, row)) for row in await connection.fetch(statement))
        for name, statement in SCHEMA.items()
    }


SCHEMA = {
    "columns": """
        SELECT table_name, column_name, data_type, is_nullable, column_default
          FROM information_schema.columns WHERE table_schema = 'public'
    """,
    "indexes": "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "constraints": """
        SELECT conrelid::regclass, contype, pg_get_constraintdef(oid)
          FROM pg_constraint
         WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
    """,
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
}
