"""The tester chain and anvil for tests that run on both, so that anvil is the judge.

Each chain starts once per test run. A test begins with on-demand mining and an empty pool, and
everything that it did to the chain is reverted after it. Clocks are not.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
import pytest_asyncio

from ltzd.dev.services.chain import CHAIN_ID
from ltzd.dev.tester_chain import running
from tests.support.chain.chains import a_chain
from tests.support.chain.tester import GWEI, Rpc

KINDS = ("tester", "anvil")


@asynccontextmanager
async def either_chain(kind: str, block_time: float = 0) -> AsyncIterator[Rpc]:
    """A chain of one test's own; `block_time` is in seconds, 0 mines on demand."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        if kind == "tester":
            server = await stack.enter_async_context(running(0, block_time, chain_id=CHAIN_ID))
            yield Rpc(server.url, http, CHAIN_ID)
        else:
            anvil = await stack.enter_async_context(a_chain("anvil", block_time))
            yield Rpc(anvil.rpc_url, http, CHAIN_ID)


class BothChains:
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._by_kind: dict[str, Rpc] = {}

    async def of(self, kind: str) -> Rpc:
        if kind not in self._by_kind:
            self._by_kind[kind] = await self._stack.enter_async_context(either_chain(kind))
        return self._by_kind[kind]


@pytest_asyncio.fixture(scope="session")
async def both_chains() -> AsyncIterator[BothChains]:
    async with AsyncExitStack() as stack:
        yield BothChains(stack)


@pytest_asyncio.fixture(params=KINDS)
async def node(request: pytest.FixtureRequest, both_chains: BothChains) -> AsyncIterator[Rpc]:
    rpc = await both_chains.of(request.param)
    snapshot = await rpc("evm_snapshot")
    # anvil's revert keeps the next block's base fee, and its calls at block 0 see no clock.
    await rpc("anvil_setNextBlockBaseFeePerGas", hex(GWEI))
    await rpc("evm_mine")
    yield rpc
    await rpc("anvil_dropAllTransactions")
    await rpc("evm_revert", snapshot)
    await rpc("evm_setAutomine", True)


@pytest_asyncio.fixture
async def node_mined_by_hand(node: Rpc) -> Rpc:
    await node("evm_setAutomine", False)
    return node
