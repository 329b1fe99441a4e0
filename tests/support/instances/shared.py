"""Instances that tests share: one for each kind of chain, started on first use.

A test may kill and restart a shared instance or reorganise its chain, but must leave it running
with every reward minted. The files that use them run first, one after the other; the instances end
before a file that does not, because an idle instance takes a twentieth of a core.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.support.instances.instance import Instance, an_instance

KINDS = ("tester", "anvil")


FIXTURE = "instances"
"""All fixtures of shared instances come from this one."""


class Instances:
    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._by_kind: dict[str, Instance] = {}

    async def of(self, kind: str) -> Instance:
        if kind not in self._by_kind:
            instance = await self._stack.enter_async_context(
                an_instance("--chain", kind, first_by_command=True)
            )
            self._by_kind[kind] = instance
        if not self._by_kind[kind].is_running:
            await self._by_kind[kind].start_again()
        return self._by_kind[kind]

    async def end(self) -> None:
        """Ends the instances that run; the next use starts new ones."""
        self._by_kind.clear()
        await self._stack.aclose()


_shared = Instances()


async def end_shared() -> None:
    await _shared.end()


@pytest_asyncio.fixture(scope="session")
async def instances() -> AsyncIterator[Instances]:
    yield _shared
    await end_shared()


@pytest_asyncio.fixture(params=KINDS)
async def instance(request: pytest.FixtureRequest, instances: Instances) -> Instance:
    return await instances.of(request.param)


@pytest_asyncio.fixture
async def one_instance(instances: Instances) -> Instance:
    """The instance on anvil, for tests that do not depend on the kind of chain.

    The tester chain takes a second of a core to start, and many times anvil's for a transaction.
    """
    return await instances.of("anvil")
