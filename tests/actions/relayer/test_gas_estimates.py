"""Gas limits from the cached estimate of calls of one kind, checked by one execution each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ltzd.actions.relayer.gas_estimates import GasEstimateCache
from ltzd.chain.node.node import Node
from ltzd.concurrency.clock import Clock, loop_time
from ltzd.errors import TransactionFailed
from ltzd.rules.operator.fees import FeePolicy
from ltzd.rules.relayer.allowed_calls import MAX_GAS_LIMIT
from tests.support.chain.scripted_node import a_server, error, result
from tests.support.clocks import ManualClock
from tests.support.relays.lanes import RELAYER, a_plan
from tests.support.relays.simulators import SimulatorAtHead
from tests.support.waiting import until

PLAN = a_plan(b"\x01\x02\x03\x04")
SAME_KIND = a_plan(b"\x05\x06\x07\x08")
LONGER = a_plan(b"\x01\x02\x03\x04\x05")


class Chain:
    """A node on which every call needs `needed` gas, or reverts."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.reverts = False
        self.estimates = 0
        self.executions = 0

    def __call__(self, request: Any) -> object:
        if isinstance(request, list):
            return [self(each) for each in request]
        if request["method"] == "eth_estimateGas":
            self.estimates += 1
            return (
                error(request, "execution reverted", 3)
                if self.reverts
                else self._estimated(request)
            )
        if request["method"] == "eth_getCode":
            return result(request, "0x")
        self.executions += 1
        is_enough = int(request["params"][0]["gas"], 16) >= self.needed
        return (
            result(request, "0x")
            if is_enough and not self.reverts
            else error(request, "out of gas")
        )

    def _estimated(self, request: Any) -> object:
        return result(request, hex(self.needed))


@asynccontextmanager
async def simulator(chain: Chain, clock: Clock = loop_time) -> AsyncIterator[SimulatorAtHead]:
    async with a_server(chain) as rpc:
        yield SimulatorAtHead(Node(rpc), FeePolicy(), clock)


async def test_a_call_of_a_known_kind_is_executed_once_and_not_estimated() -> None:
    chain = Chain(80_000)
    async with simulator(chain) as relay_simulator:
        first = await relay_simulator.gas_limit(PLAN, RELAYER.address, None)
        second = await relay_simulator.gas_limit(SAME_KIND, RELAYER.address, None)
    assert (first, second) == (100_000, 100_000)
    assert (chain.estimates, chain.executions) == (1, 1)


async def test_a_call_that_needs_more_gas_than_its_kind_is_estimated() -> None:
    chain = Chain(80_000)
    async with simulator(chain) as relay_simulator:
        await relay_simulator.gas_limit(PLAN, RELAYER.address, None)
        chain.needed = 120_000
        assert await relay_simulator.gas_limit(SAME_KIND, RELAYER.address, None) == 150_000
        assert await relay_simulator.gas_limit(PLAN, RELAYER.address, None) == 150_000
    assert chain.estimates == 2


async def test_a_call_of_another_length_is_estimated() -> None:
    chain = Chain(80_000)
    async with simulator(chain) as relay_simulator:
        await relay_simulator.gas_limit(PLAN, RELAYER.address, None)
        await relay_simulator.gas_limit(LONGER, RELAYER.address, None)
    assert (chain.estimates, chain.executions) == (2, 0)


async def test_a_call_that_reverts_is_refused_even_if_its_kind_passed() -> None:
    chain = Chain(80_000)
    async with simulator(chain) as relay_simulator:
        await relay_simulator.gas_limit(PLAN, RELAYER.address, None)
        chain.reverts = True
        with pytest.raises(TransactionFailed):
            await relay_simulator.gas_limit(SAME_KIND, RELAYER.address, None)


async def test_concurrent_calls_of_a_new_kind_are_not_all_estimated() -> None:
    chain = Chain(80_000)
    async with simulator(chain) as relay_simulator:
        limits = await asyncio.gather(
            *[relay_simulator.gas_limit(PLAN, RELAYER.address, None) for _ in range(100)]
        )
    assert set(limits) == {100_000}
    assert chain.estimates <= 8


async def test_a_due_estimate_is_renewed_after_the_call_that_made_it_due() -> None:
    chain, clock = Chain(80_000), ManualClock()
    async with simulator(chain, clock) as relay_simulator:
        await relay_simulator.gas_limit(PLAN, RELAYER.address, None)
        chain.needed = 40_000
        clock.now += 10.0
        assert await relay_simulator.gas_limit(SAME_KIND, RELAYER.address, None) == 100_000
        assert chain.estimates == 1, "the caller may publish first"

        async def is_renewed() -> bool:
            return await relay_simulator.gas_limit(PLAN, RELAYER.address, None) == 60_000

        await until(is_renewed)
    assert chain.estimates == 2


def test_a_cached_estimate_covers_the_gas_needed_and_the_gas_limit() -> None:
    cache = GasEstimateCache()
    cache.put(PLAN, 80_001)
    assert cache.get(SAME_KIND) == 85_000
    cache.put(PLAN, MAX_GAS_LIMIT - 1)
    assert cache.get(SAME_KIND) == MAX_GAS_LIMIT


def test_a_cached_estimate_is_periodically_renewed_by_a_single_call() -> None:
    clock = ManualClock()
    cache = GasEstimateCache(clock)
    assert not cache.take_renewal(PLAN), "other calls have emptied the cache"
    cache.put(PLAN, 80_000)
    assert not cache.take_renewal(PLAN)
    clock.now += 10.0
    assert cache.get(PLAN) == 80_000
    assert [cache.take_renewal(PLAN), cache.take_renewal(PLAN)] == [True, False]
    cache.put(PLAN, 60_000)
    assert cache.get(PLAN) == 60_000


def test_calls_of_many_kinds_do_not_fill_the_memory() -> None:
    cache = GasEstimateCache()
    for length in range(1_000):
        cache.put(a_plan(bytes(length)), 80_000)
        assert length == 0 or length % 64 == 0 or a_plan(bytes(length - 1)) in cache
    assert sum((a_plan(bytes(length)) in cache) for length in range(1_000)) <= 64
