"""A PostgreSQL that survives power failures, as `ltzd run` demands."""

from collections.abc import AsyncIterator

import pytest_asyncio

from ltzd.store.schema_revisions import migrate
from tests.support.services.postgres import Databases, a_postgres


@pytest_asyncio.fixture(scope="session")
async def databases() -> AsyncIterator[Databases]:
    async with a_postgres(prepare=migrate, settings={}) as databases:
        yield databases
