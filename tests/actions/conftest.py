"""Fixtures: a fresh database's pool, deployed contracts, sites."""

from collections.abc import AsyncIterator

import pytest_asyncio

from ltzd.store.database import Pool
from tests.support.chain.contracts import Contracts as Deployed
from tests.support.chain.contracts import deployed_contracts
from tests.support.rows.core import pool
from tests.support.sites.redemptions import Sites, some_sites
from tests.support.surfaces.event_action import sandbox

__all__ = ["pool", "sandbox"]


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def deployed() -> AsyncIterator[Deployed]:
    async with deployed_contracts("anvil") as deployed:
        yield deployed


@pytest_asyncio.fixture
async def sites(database_url: str, pool: Pool, deployed: Deployed) -> AsyncIterator[Sites]:
    async with some_sites(database_url, pool, deployed) as sites:
        yield sites
