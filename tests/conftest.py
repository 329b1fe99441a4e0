"""Fixtures that many tests share, and the order of the test files.

Each worker has one PostgreSQL server; each test that asks for one has a fresh database. The files
that use the shared instances run first, so that these can end. Files that take minutes come before
the others, so that no worker still runs one of them when the others are done.
"""

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest
import pytest_asyncio

from ltzd.store.schema_revisions import migrate
from tests.support.instances import shared
from tests.support.instances.shared import instance, instances, one_instance
from tests.support.log_watch import LogWatch
from tests.support.loop_turns import is_spinning
from tests.support.services.postgres import Databases, a_postgres
from tests.support.told_logs import pytest_runtest_logstart, pytest_runtest_makereport

__all__ = [
    "database_url",
    "databases",
    "instance",
    "instances",
    "one_instance",
    "pytest_runtest_logstart",
    "pytest_runtest_makereport",
]

# Collecting makes a million objects that stay: scanning them again and again takes a third of it.
gc.disable()

# A deadline would be a timed test: a busy machine must not fail a build.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# The longest files first, then folders by the time that their files take.
LONGEST_FIRST = (
    "tests/dev/test_dev_instance.py",
    "tests/faults/test_kills.py",
    "tests/faults/test_stolen_keys.py",
    "tests/faults/",
    "tests/browser/",
    "tests/wordpress/",
    "tests/surfaces/test_schemathesis.py",
    "tests/operator/test_many_nodes.py",
    "tests/operator/",
    "tests/dev/",
    "tests/cli/",
    "tests/chain/",
    "tests/indexer/",
    "tests/actions/",
    "tests/daemon/",
    "tests/surfaces/",
    "tests/store/",
    "tests/providers/",
)


USES_INSTANCES = pytest.StashKey[set[Path]]()
"""The files with a test that uses a shared instance."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    users = {item.path for item in items if shared.FIXTURE in getattr(item, "fixturenames", ())}
    config.stash[USES_INSTANCES] = users
    items.sort(key=lambda item: (item.path not in users, _place_in_the_order(item)))


def pytest_collection_finish() -> None:
    """Exempts what was collected; then garbage is collected at the daemon's pace."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def _place_in_the_order(item: pytest.Item) -> int:
    matches = (i for i, path in enumerate(LONGEST_FIRST) if item.nodeid.startswith(path))
    return next(matches, len(LONGEST_FIRST))


@pytest_asyncio.fixture(scope="module", autouse=True)
async def no_idle_instances(request: pytest.FixtureRequest) -> None:
    """Ends the shared instances before a file that does not use them."""
    if request.path not in request.config.stash[USES_INSTANCES]:
        await shared.end_shared()


@pytest_asyncio.fixture(scope="module", autouse=True)
async def the_loop_falls_idle() -> AsyncIterator[None]:
    """Fails a file that leaves a callback or a task that takes every turn of the event loop."""
    yield
    assert not await is_spinning()


@pytest.fixture(scope="session")
def log_watch() -> LogWatch:
    """Reads all log lines of this process, also those that a test captures."""
    watch = LogWatch()
    watch.install()
    return watch


@pytest.fixture(autouse=True)
def nothing_secret_is_logged(log_watch: LogWatch) -> Iterator[None]:
    """Fails a test during which a key, a token or an e-mail address was logged."""
    yield
    assert log_watch.take() == []


@pytest_asyncio.fixture(scope="session")
async def databases() -> AsyncIterator[Databases]:
    async with a_postgres(prepare=migrate) as databases:
        yield databases


@pytest_asyncio.fixture
async def database_url(databases: Databases) -> AsyncIterator[str]:
    async with databases.fresh() as url:
        yield url
