"""The start with a standby of PostgreSQL, before and after its promotion."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from ltzd.daemon.checks import database as database_check
from ltzd.daemon.settings.settings import Settings, read_settings
from ltzd.dev.services import postgres
from ltzd.rules.checks.findings import Finding, Level
from ltzd.store.database import Connection, commits_hang, connect, takes_writes
from tests.support.folders import a_data_directory
from tests.support.installations import Installation
from tests.support.services.replicas import a_copy
from tests.support.waiting import until


@pytest_asyncio.fixture
async def standby_url() -> AsyncIterator[str]:
    async with a_data_directory() as folder, a_data_directory() as other:
        primary = await postgres.start(folder, postgres.UNSAFE_BUT_FAST)
        await a_copy(folder, primary.url, other, follows=True)
        yield (await postgres.start(other, postgres.UNSAFE_BUT_FAST)).url


def settings_of(folder: Path, url: str, replica_url: str | None = None) -> Settings:
    installation = Installation.of(folder, url, "http://127.0.0.1:1")
    if replica_url is not None:
        installation.values["database"] = f'replica_url = "{replica_url}"'
    return read_settings(installation.write())


async def findings(settings: Settings, check: str) -> list[Finding]:
    examination = await database_check.examine(settings, None, [])
    return [finding for finding in examination.findings if finding.check == check]


async def promote(url: str) -> None:
    connection = await connect(url, "test")
    try:
        assert await connection.fetchval("SELECT pg_promote()")
    finally:
        await connection.close()


async def test_a_standby_is_no_database_to_write_to_until_it_is_promoted(
    standby_url: str, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, standby_url)

    (finding,) = await findings(settings, "database")
    assert finding.level is Level.FAULT
    assert "database_url leads to a standby, which takes no writes" in finding.sentence
    assert "target_session_attrs=primary" in finding.sentence

    await promote(standby_url)
    assert await findings(settings, "database") == []


async def test_commits_that_wait_for_a_lost_standby_are_writes_that_the_database_does_not_take(
    tmp_path: Path,
) -> None:
    async with a_data_directory() as folder:
        url = (await postgres.start(folder, {"fsync": "off", "full_page_writes": "off"})).url
        settings = settings_of(tmp_path, url)
        connection, writer = await connect(url, "test"), await connect(url, "writer")
        await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await connection.execute("SELECT pg_reload_conf()")
        await until(lambda: standby_names(connection, "*"))
        assert await takes_writes(connection)
        is_over = asyncio.Event()
        writing = asyncio.create_task(write(writer, is_over))

        await until(lambda: commits_hang(connection), seconds=30)
        assert not await takes_writes(connection)
        (finding,) = await findings(settings, "database")
        assert finding.level is Level.FAULT
        assert "Commits wait for a synchronous standby" in finding.sentence

        for statement in finding.sentence.split("superuser: ")[1].split(";")[:-1]:
            await connection.execute(statement)
        is_over.set()
        await writing
        assert await takes_writes(connection)
        assert await findings(settings, "database") == []
        await connection.close()
        await writer.close()


async def write(writer: Connection, is_over: asyncio.Event) -> None:
    """Commit until told to end: the first commits may precede the server's new setting."""
    await writer.execute("CREATE TABLE written ()")
    while not is_over.is_set():
        await writer.execute("INSERT INTO written DEFAULT VALUES")


async def standby_names(connection: Connection, names: str) -> bool:
    shown: str = await connection.fetchval("SHOW synchronous_standby_names")
    return shown == names


async def test_a_replica_that_was_promoted_keeps_no_process_from_its_start(
    standby_url: str, tmp_path: Path
) -> None:
    """After a failover a process must be able to start again before a person changes settings."""
    await promote(standby_url)

    (finding,) = await findings(settings_of(tmp_path, standby_url, standby_url), "replica")

    assert finding.level is Level.WARNING
    assert "was promoted" in finding.sentence
    assert "the primary is asked in its place" in finding.sentence
