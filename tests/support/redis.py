"""A real Redis for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ltzd.dev import redis
from tests.support.folders import a_data_directory


@asynccontextmanager
async def a_redis() -> AsyncIterator[str]:
    """The URL of an empty server, gone afterwards."""
    async with a_data_directory() as folder:
        yield await redis.start(folder)
