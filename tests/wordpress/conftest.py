"""One real WordPress for the tests of this folder, where Debian's packages are installed."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.sites.wordpress import WordPressSite, a_wordpress


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WordPressSite]:
    async with a_wordpress(tmp_path_factory.mktemp("wordpress")) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(core: WordPressSite) -> AsyncIterator[WordPressSite]:
    """A site with the plugin."""
    await core.activate()
    yield core
    await core.deactivate()
