"""A daemon's schema is upgraded by a process of its own, whole or not at all."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.store import schema_revisions
from ltzd.store.migrations import known_revisions, upgrades
from tests.support.services.postgres import Databases
from tests.support.waiting import until

LOCK = "SELECT pg_advisory_lock(x'6C747A64'::int)"
"""The lock that every upgrade takes first."""


@pytest_asyncio.fixture
async def empty_url(databases: Databases) -> AsyncIterator[str]:
    async with databases.fresh() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await connection.close()
        yield url


@pytest_asyncio.fixture
async def person(empty_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(empty_url)
    yield connection
    connection.terminate()


async def waits_for_the_lock(person: asyncpg.Connection) -> int | None:
    """The session of the upgrade, once it waits."""
    session: int | None = await person.fetchval(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'ltzd migrate' AND wait_event = 'advisory'"
    )
    return session


async def revision(url: str) -> str | None:
    return (await schema_revisions.read_schema(url)).revision


async def test_a_child_upgrades_the_schema(empty_url: str) -> None:
    await schema_revisions.migrate(empty_url, in_child=True)

    assert await revision(empty_url) == known_revisions()[-1]


async def test_the_child_is_this_program_whatever_the_working_directory_holds(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkout of another version has a folder `ltzd`, too."""
    (tmp_path / "ltzd").mkdir()
    (tmp_path / "ltzd/__init__.py").write_text('raise SystemExit("another program")')
    (tmp_path / "alembic.py").write_text('raise SystemExit("another program")')
    monkeypatch.chdir(tmp_path)

    await schema_revisions.migrate(empty_url, in_child=True)

    assert await revision(empty_url) == known_revisions()[-1]


async def test_a_refused_statement_is_told_and_changes_nothing(
    empty_url: str, person: asyncpg.Connection
) -> None:
    await person.execute("CREATE TABLE webhooks (mine int)")

    with pytest.raises(Misconfigured) as caught:
        await schema_revisions.migrate(empty_url, in_child=True)

    assert 'relation "webhooks" already exists (42P07)' in caught.value.message
    assert "changed nothing" in caught.value.message
    assert await revision(empty_url) is None
    assert await person.fetchval("SELECT to_regclass('events')") is None


async def test_a_lost_database_is_told_and_the_upgrade_can_be_repeated(
    empty_url: str, person: asyncpg.Connection
) -> None:
    await person.execute(LOCK)
    upgrade = asyncio.create_task(schema_revisions.migrate(empty_url, in_child=True))
    session = await until(lambda: waits_for_the_lock(person))

    await person.execute("SELECT pg_terminate_backend($1)", session)

    with pytest.raises(DatabaseUnavailable, match=r"cut off: .*terminating connection"):
        await upgrade
    await person.execute("SELECT pg_advisory_unlock_all()")
    await schema_revisions.migrate(empty_url, in_child=True)
    assert await revision(empty_url) == known_revisions()[-1]


async def test_a_cancelled_start_ends_the_child(empty_url: str, person: asyncpg.Connection) -> None:
    await person.execute(LOCK)
    upgrade = asyncio.create_task(schema_revisions.migrate(empty_url, in_child=True))
    await until(lambda: waits_for_the_lock(person))

    upgrade.cancel()

    with pytest.raises(asyncio.CancelledError):
        await upgrade
    await person.execute("SELECT pg_advisory_unlock_all()")

    async def has_gone() -> bool:
        sessions: int = await person.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'ltzd migrate'"
        )
        return sessions == 0

    assert await until(has_gone)
    assert await revision(empty_url) is None


@pytest.mark.parametrize("in_child", [False, True])
async def test_the_url_is_the_one_that_the_daemon_uses(empty_url: str, *, in_child: bool) -> None:
    """`sslmode` is libpq's word, and a URL may name several hosts."""
    parts = urlsplit(empty_url)
    hosts = f"{parts.hostname}:1,{parts.hostname}:{parts.port}"
    user = parts.netloc.rpartition("@")[0]
    url = f"postgresql://{user}@{hosts}{parts.path}?sslmode=prefer&target_session_attrs=primary"

    await schema_revisions.migrate(url, in_child=in_child)

    assert await revision(empty_url) == known_revisions()[-1]


@pytest.mark.parametrize("in_child", [False, True])
async def test_nobody_waits_for_long_behind_an_upgrade_that_waits_for_a_dump(
    empty_url: str, person: asyncpg.Connection, *, in_child: bool
) -> None:
    await asyncio.to_thread(upgrades.upgrade, empty_url, "0027")
    dump = await asyncpg.connect(empty_url, server_settings={"application_name": "pg_dump"})
    await dump.execute("BEGIN; LOCK TABLE events IN ACCESS SHARE MODE")

    with capture_logs() as lines:
        upgrade = asyncio.create_task(schema_revisions.migrate(empty_url, in_child=in_child))

        async def warnings() -> list[MutableMapping[str, Any]]:
            return [each for each in lines if each["log_level"] == "warning"]

        waits = await until(warnings)
        assert await person.fetch("SELECT FROM events") == []
        assert not upgrade.done()
        dump.terminate()
        await upgrade

    assert [each["event"] for each in waits] == ["migration.tables_locked"]
    assert waits[0]["reason"].endswith(" (pg_dump) keeps a table locked")
    assert lines[-1]["event"] == "migration.continues"
    assert await revision(empty_url) == known_revisions()[-1]
