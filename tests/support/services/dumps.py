"""Dumps of a PostgreSQL database, and databases that are restored from them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from ltzd.dev.services import postgres


async def dump(url: str, file: Path) -> None:
    """Dump a database that may be in use, in PostgreSQL's custom format."""
    returncode, errors = await _ended("pg_dump", "--format=custom", "--file", file, "--dbname", url)
    assert returncode == 0, errors


@asynccontextmanager
async def restored(server_url: str, file: Path, name: str) -> AsyncIterator[str]:
    """The URL of a new database with the dump's content; dropped at the end.

    Skips the test if the dump is of a newer PostgreSQL, in a format that this one does not know.
    """
    url = f"{server_url.rpartition('/')[0]}/{name}"
    await _execute(server_url, f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        returncode, errors = await _ended(
            "pg_restore", "--exit-on-error", "--no-owner", "--dbname", url, file
        )
        if "unsupported version" in errors:
            pytest.skip(errors)
        assert returncode == 0, errors
        yield url
    finally:
        await _execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _ended(program: str, *arguments: object) -> tuple[int | None, str]:
    """The program's exit status and its error output."""
    process = await asyncio.create_subprocess_exec(
        postgres._program(program), *map(str, arguments), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, errors.decode()
