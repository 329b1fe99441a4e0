"""Fixtures that many tests share, and the order of the test files.

Each worker has one PostgreSQL server; each test that asks for one has a fresh database. Files that
take minutes run first, so that no worker still runs one of them when the others are done.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ltzd.store.database import migrate
from tests.support.instances.shared import instance, instances, one_instance
from tests.support.services.postgres import Databases, a_postgres

__all__ = ["database_url", "databases", "instance", "instances", "one_instance"]

# The longest files first, then folders by the time that their files take.
LONGEST_FIRST = (
    "tests/dev/test_dev_instance.py",
    "tests/faults/test_kills.py",
    "tests/faults/",
    "tests/browser/",
    "tests/wordpress/",
    "tests/cli/",
    "tests/dev/",
    "tests/operator/",
    "tests/actions/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place_in_the_order)


def _place_in_the_order(item: pytest.Item) -> int:
    matches = (i for i, path in enumerate(LONGEST_FIRST) if item.nodeid.startswith(path))
    return next(matches, len(LONGEST_FIRST))


@pytest_asyncio.fixture(scope="session")
async def databases() -> AsyncIterator[Databases]:
    async with a_postgres(prepare=migrate) as databases:
        yield databases


@pytest_asyncio.fixture
async def database_url(databases: Databases) -> AsyncIterator[str]:
    async with databases.fresh() as url:
        yield url
