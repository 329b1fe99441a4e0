"""Real dev chains for tests: one of each kind per test run, or one of a test's own.

A test that needs anvil fails if anvil is missing; it is never skipped.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest_asyncio

from ltzd.dev.services import chain
from ltzd.dev.services.chain import DevChain, Kind
from tests.support.folders import a_data_directory


@asynccontextmanager
async def a_chain(kind: Kind, block_time: float = 0.0) -> AsyncIterator[DevChain]:
    """Starts a chain for one test, at block 0; `block_time` is in seconds, 0 mines on demand."""
    async with a_data_directory() as folder:
        yield await chain.start(folder, kind, block_time, None)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def tester_chain() -> AsyncIterator[DevChain]:
    """A shared chain that mines on demand; other tests use it too."""
    async with a_chain("tester") as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def anvil_chain() -> AsyncIterator[DevChain]:
    """A shared chain that mines on demand; other tests use it too."""
    async with a_chain("anvil") as running:
        yield running
