"""What many tests share: one PostgreSQL, a fresh database for each test, whole instances."""

from collections.abc import AsyncIterator

import pytest_asyncio

from ltzd.store.database import migrate
from tests.support.instances.shared import instance, instances, one_instance
from tests.support.services.postgres import Databases, a_postgres

__all__ = ["database_url", "databases", "instance", "instances", "one_instance"]


@pytest_asyncio.fixture(scope="session")
async def databases() -> AsyncIterator[Databases]:
    async with a_postgres(prepare=migrate) as databases:
        yield databases


@pytest_asyncio.fixture
async def database_url(databases: Databases) -> AsyncIterator[str]:
    async with databases.fresh() as url:
        yield url
