"""Fixtures for commands that run beside a dev instance's database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ltzd.store import database
from ltzd.store.database import Connection
from tests.support.commands import a_data_directory_of


@pytest.fixture
def data_dir(tmp_path: Path, database_url: str) -> Path:
    return a_data_directory_of(tmp_path / "data", database_url)


@pytest_asyncio.fixture
async def db(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "test")
    try:
        yield connection
    finally:
        await connection.close()
